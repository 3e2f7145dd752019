"""The check before commit, in a run: what it did is on record, and what no summary would do for is truncated."""

from tests.agents.full_context import compressed, conversation, request_size, summary
from tests.agents.office import NAME, Office
from tests.unit.histories import research
from waystation.context.constraints import extract_user_constraints
from waystation.context.history import build_model_view
from waystation.context.outcome import Status
from waystation.context.transcript import Message, build_user_message
from waystation.testing import ScriptedModel


async def full_after(office: Office, *remarks: str) -> None:
    """A full context, with remarks of the user's early in it."""
    first, *turns = conversation()
    said = [build_user_message(f"r{number}", remark) for number, remark in enumerate(remarks)]
    messages: list[Message] = [first, *turns[:6], *said, *turns[6:], build_user_message("m40", "Go on.")]
    await office.said(messages)


async def test_what_the_check_added_and_removed_is_on_record_and_in_the_outcome_also_of_a_retry(office: Office) -> None:
    await full_after(office, f"Never call {NAME}. See docs/plan.md.")
    request = office.compaction(await request_size(office))
    office.model = ScriptedModel([summary('The user said "dig it out" and more.')])
    outcome = await office.condenser.compress(request)
    assert outcome.status is Status.COMPRESSED
    assert outcome.added[:3] == ("constraints of the user: 1", "open items: 1", "requests of the user: 1 of 1")
    assert outcome.removed == ("quotations in the user's name, never said: 1",)
    (record,) = (await office.transcript()).compactions
    assert record.type == "summarised"
    assert (record.added, record.removed) == (outcome.added, outcome.removed)
    assert "dig it out" not in record.summary.text
    assert f"\nuser: Never call {NAME}.\n" in record.summary.text
    assert "\nasked: See docs/plan.md.\n" in record.summary.text
    again = await office.condenser.compress(request)
    assert (again.added, again.removed) == (outcome.added, outcome.removed)


async def test_a_quotation_of_a_message_that_was_hidden_before_stays(office: Office) -> None:
    await full_after(office, "Dig it out.")
    await compressed(office, ScriptedModel([summary("Begun.")]))
    over = await office.transcript()
    assert "Dig it out." not in [message.text for message in build_model_view(over)]
    await office.said(research(13, 1_300, tool="recall", start=30))
    outcome = await compressed(office, ScriptedModel([summary('The user said "dig it out".')]), known_records=1)
    assert (outcome.status, outcome.removed) == (Status.COMPRESSED, ())


async def test_demands_over_a_fifth_of_the_window_lead_to_truncation_that_keeps_them_without_a_call(
    office: Office,
) -> None:
    demands = [f"Never dredge basin {number}: {'it is listed, ' * 60}yes." for number in range(2, 30)]
    await full_after(office, *demands)
    model = ScriptedModel([])
    outcome = await compressed(office, model)
    assert (outcome.status, model.calls) == (Status.TRUNCATED, 0)
    assert outcome.notes[0].startswith("A summary was rejected (FAILED_CHECK): constraints: what the user demanded")
    assert set(extract_user_constraints(build_model_view(await office.transcript()))) == set(demands)
