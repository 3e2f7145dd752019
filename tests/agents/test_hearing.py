"""What people tell a task: each agent hears it once, also after crashes, rewinds and compactions."""

from tests.agents.full_context import compressed, conversation, summary
from tests.agents.office import NOON, SECRET, SECRET_PLACEHOLDER, TASK, Office, use, without_statuses
from tests.agents.test_agent_loop import READ, SUBMIT
from waystation.agents.attempt import render_task_messages
from waystation.agents.leg import AgentFinished, TurnLimit
from waystation.context.history import build_model_view
from waystation.tasks.context_editor import Rewinder
from waystation.tasks.task import Telling, as_message
from waystation.testing import ScriptedModel, make_scripted_response

WORDS = "Never cite the almanac:\n  its soundings are wrong."
DEMAND, WISH = "Never cite the almanac of 1790.", "Look at the eastern basin, too."


async def tell(office: Office, number: int, words: str) -> None:
    telling = Telling(number=number, text=await office.store.put_text(words, office.ref.reader), by="Ada", told_at=NOON)
    await office.store.audit(TASK, telling)


async def heard(office: Office) -> list[tuple[str, str]]:
    """Where and what the agent was told beside its contract, in all that it ever heard."""
    return [(message.id, message.text) for message in (await office.transcript()).messages if message.told]


async def test_an_agent_hears_it_after_its_contract_or_its_results_word_for_word_and_once(office: Office) -> None:
    office.terms = office.terms.replace(turn_limit=1)
    await tell(office, 1, WORDS)
    assert isinstance(await office.leg(ScriptedModel([READ])), TurnLimit)
    await tell(office, 2, f"The key is {SECRET}.")
    second = ScriptedModel([make_scripted_response(use("read_document", "c5", name="keeper.md"))])
    await office.leg(second, 2)
    assert isinstance(await office.leg(ScriptedModel([SUBMIT]), 3), AgentFinished)
    assert await heard(office) == [("m2", WORDS), ("m5", f"The key is {SECRET_PLACEHOLDER}.")]
    assert [message.id for message in without_statuses(second.requests[0].messages)] == ["m1", "m2", "m3", "m4", "m5"]


async def test_an_agent_that_has_handed_in_goes_on_for_nobody(office: Office) -> None:
    await office.leg(ScriptedModel([SUBMIT]))
    await tell(office, 1, WORDS)
    assert isinstance(await office.leg(ScriptedModel([]), 2), AgentFinished)
    assert await heard(office) == []


async def test_what_was_heard_and_is_taken_back_is_heard_again(office: Office) -> None:
    office.terms = office.terms.replace(turn_limit=1)
    await office.leg(ScriptedModel([READ]))
    await tell(office, 1, WORDS)
    await office.leg(ScriptedModel([make_scripted_response(use("read_document", "c5", name="keeper.md"))]), 2)
    rewinder = Rewinder(office.store, office.archive)
    await rewinder.rewind(office.run_ref(), "m3", "edit-1", keep=True)
    await office.leg(ScriptedModel([SUBMIT]), 3)
    assert await heard(office) == [("m4", WORDS), ("m7", WORDS)]


async def test_a_compaction_keeps_the_words_as_the_users_own(office: Office) -> None:
    said = [*conversation()]
    said[7:7] = [as_message("told", 1, f"{DEMAND} {WISH}")]
    said[-2:-2] = [as_message("told", 2, "And go on.")]
    await office.said([message.replace(id=f"m{n}") for n, message in enumerate(said, 1)])
    assert (await compressed(office, ScriptedModel([summary()]))).status.made_room
    shown = build_model_view(await office.transcript())
    words = "\n".join(message.text for message in shown)
    assert not any(message.told == 1 for message in shown)
    assert DEMAND in words
    assert WISH in words
    assert [message.text for message in shown if message.told] == ["And go on."]


async def test_who_is_asked_only_once_reads_all_of_it(office: Office) -> None:
    assert await render_task_messages(office.store, office.ref.reader) is None
    await tell(office, 1, DEMAND)
    await tell(office, 2, WISH)
    part = await render_task_messages(office.store, office.ref.reader)
    assert part == f"<told_meanwhile>\n{DEMAND}\n{WISH}\n</told_meanwhile>"
