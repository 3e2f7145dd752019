"""Messages of people to a task: each agent receives one once, also after crashes, rewinds and compactions."""

from tests.agents.test_agent_loop import READ, SUBMIT
from tests.support.agent_environment import (
    NOON,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    AgentEnvironment,
    make_tool_use,
    without_statuses,
)
from tests.support.full_context import make_conversation, make_summary_response, run_compaction
from waystation.agents.leg import AgentFinished, TurnLimitReached
from waystation.agents.leg_attempt import render_task_messages
from waystation.agents.task_messages import TaskMessage, build_transcript_message
from waystation.context.history import build_model_view
from waystation.tasks.context_editor import TranscriptRewinder
from waystation.testing.doubles import ScriptedModel, make_scripted_response

WORDS = "Never cite the almanac:\n  its soundings are wrong."
DEMAND, WISH = "Never cite the almanac of 1790.", "Look at the eastern basin, too."


async def send_message(env: AgentEnvironment, number: int, words: str) -> None:
    message = TaskMessage(number=number, text=await env.store.put_text(words, env.ref.scope), by="Ada", sent_at=NOON)
    await env.store.add_audit_entry(TASK, message)


async def heard(env: AgentEnvironment) -> list[tuple[str, str]]:
    """Where and what the agent was told besides its task brief, in all that it ever heard."""
    return [(message.id, message.text) for message in (await env.load_transcript()).messages if message.task_message]


async def test_an_agent_hears_it_after_its_task_brief_or_its_results_word_for_word_and_once(
    env: AgentEnvironment,
) -> None:
    env.terms = env.terms.replace(turn_limit=1)
    await send_message(env, 1, WORDS)
    assert isinstance(await env.run_leg(ScriptedModel([READ])), TurnLimitReached)
    await send_message(env, 2, f"The key is {SECRET}.")
    second = ScriptedModel([make_scripted_response(make_tool_use("read_document", "c5", name="keeper.md"))])
    await env.run_leg(second, 2)
    assert isinstance(await env.run_leg(ScriptedModel([SUBMIT]), 3), AgentFinished)
    assert await heard(env) == [("m2", WORDS), ("m5", f"The key is {SECRET_PLACEHOLDER}.")]
    assert [message.id for message in without_statuses(second.requests[0].messages)] == ["m1", "m2", "m3", "m4", "m5"]


async def test_an_agent_that_has_handed_in_goes_on_for_nobody(env: AgentEnvironment) -> None:
    await env.run_leg(ScriptedModel([SUBMIT]))
    await send_message(env, 1, WORDS)
    assert isinstance(await env.run_leg(ScriptedModel([]), 2), AgentFinished)
    assert await heard(env) == []


async def test_what_was_heard_and_is_taken_back_is_heard_again(env: AgentEnvironment) -> None:
    env.terms = env.terms.replace(turn_limit=1)
    await env.run_leg(ScriptedModel([READ]))
    await send_message(env, 1, WORDS)
    await env.run_leg(
        ScriptedModel([make_scripted_response(make_tool_use("read_document", "c5", name="keeper.md"))]), 2
    )
    rewinder = TranscriptRewinder(env.store, env.outbox_drainer, env.agent_deps.submission_checker)
    await rewinder.rewind(env.run_ref(), "m3", "edit-1", keep=True)
    await env.run_leg(ScriptedModel([SUBMIT]), 3)
    assert await heard(env) == [("m4", WORDS), ("m7", WORDS)]


async def test_a_compaction_keeps_the_words_as_the_users_own(env: AgentEnvironment) -> None:
    said = [*make_conversation()]
    said[7:7] = [build_transcript_message("sent", 1, f"{DEMAND} {WISH}")]
    said[-2:-2] = [build_transcript_message("sent", 2, "And go on.")]
    await env.commit_conversation([message.replace(id=f"m{n}") for n, message in enumerate(said, 1)])
    assert (await run_compaction(env, ScriptedModel([make_summary_response()]))).status.made_room
    shown = build_model_view(await env.load_transcript())
    words = "\n".join(message.text for message in shown)
    assert not any(message.task_message == 1 for message in shown)
    assert DEMAND in words
    assert WISH in words
    assert [message.text for message in shown if message.task_message] == ["And go on."]


async def test_who_is_asked_only_once_reads_all_of_it(env: AgentEnvironment) -> None:
    assert await render_task_messages(env.store, env.ref.scope) is None
    await send_message(env, 1, DEMAND)
    await send_message(env, 2, WISH)
    part = await render_task_messages(env.store, env.ref.scope)
    assert part == f"<told_meanwhile>\n{DEMAND}\n{WISH}\n</told_meanwhile>"
