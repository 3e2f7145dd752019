"""Edits of an agent's context that people ask for: each is carried out once, or changes nothing."""

from datetime import UTC, datetime

import pytest

from tests.support.agent_environment import NAME, NAME_PLACEHOLDER, AgentEnvironment
from tests.support.full_context import (
    CONVERSATION_TOKENS_SPENT,
    estimate_request_size,
    make_conversation,
    make_summary_response,
)
from waystation.agents.compaction_request import EditOutcome, EditRequest
from waystation.context.compaction import CompactionStatus, ContextEdit
from waystation.context.history import build_model_view, get_pinned_message_ids
from waystation.context.transcript import build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import StaleFenceError
from waystation.tasks.context_editor import ContextEditor
from waystation.tasks.signals import MAX_INSTRUCTIONS_CHARACTERS
from waystation.testing.doubles import ScriptedModel

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def make_edit_request(env: AgentEnvironment, number: int = 1, *, known: int = 0, **edit: str) -> EditRequest:
    asked = {"id": f"edit-{number}", "agent": "research-1", "requested_at": NOON, **edit}
    return EditRequest(
        run=env.run_ref(),
        config=env.terms,
        limit=env.limit,
        edit=ContextEdit.model_validate(asked),
        known_records=known,
    )


async def edited(env: AgentEnvironment, request: EditRequest, *replies: str) -> EditOutcome:
    env.model = ScriptedModel([make_summary_response(reply) for reply in replies])
    return await ContextEditor(env.compactor).edit(request)


async def test_a_context_that_is_not_full_is_summarised_with_redacted_instructions(env: AgentEnvironment) -> None:
    await env.commit_conversation(make_conversation()[:13])
    assert await estimate_request_size(env) < env.terms.trigger
    wish = await env.store.put_text(f"Keep what {NAME} did.", env.ref.scope)
    outcome = await edited(env, make_edit_request(env, action="compact", instructions=wish), "It silted up.")
    (request,) = env.model.requests
    sent = request.messages[0].text
    assert f"<wishes>\nKeep what {NAME_PLACEHOLDER} did.\n</wishes>" in sent
    assert NAME not in sent
    assert outcome.compaction is not None
    assert (outcome.state, outcome.compaction.status) == ("done", CompactionStatus.COMPRESSED)
    assert outcome.compaction.tokens_after == await estimate_request_size(env) < outcome.compaction.tokens_before
    (record,) = (await env.load_transcript()).records
    assert record.id == outcome.compaction.compaction_id
    assert record.id.endswith("-edit-1")


async def test_a_retry_of_a_summary_makes_no_second_one(full_env: AgentEnvironment) -> None:
    request = make_edit_request(full_env, action="compact")
    first = await edited(full_env, request, "It silted up.")
    again = await ContextEditor(full_env.compactor).edit(request)
    assert full_env.model.calls == 1
    assert again.compaction is not None
    assert first.compaction is not None
    assert again.compaction.compaction_id == first.compaction.compaction_id
    assert again.compaction.tokens_before == first.compaction.tokens_before
    assert len((await full_env.load_transcript()).records) == 1


async def test_a_refused_summary_leaves_the_view_as_it_was_and_is_paid_each_time(
    full_env: AgentEnvironment,
) -> None:
    before = await full_env.load_transcript()
    outcome = await edited(full_env, make_edit_request(full_env, action="compact"), "")
    assert outcome.compaction is not None
    assert (outcome.state, outcome.compaction.status) == ("refused", CompactionStatus.FAILED_EMPTY_SUMMARY)
    assert outcome.reason.startswith("not compacted: the summary was empty. ")
    assert build_model_view(await full_env.load_transcript()) == build_model_view(before)
    second = await edited(full_env, make_edit_request(full_env, 2, action="compact"), "")
    assert second.compaction is not None
    assert second.compaction.totals.spent.tokens == CONVERSATION_TOKENS_SPENT + 2 * 9_400
    assert (await full_env.load_transcript()).records == ()


async def test_a_summary_that_the_budget_does_not_allow_changes_nothing(full_env: AgentEnvironment) -> None:
    full_env.limit = Limit(tokens=CONVERSATION_TOKENS_SPENT + 10)
    outcome = await edited(full_env, make_edit_request(full_env, action="compact"), "It silted up.")
    assert (outcome.state, full_env.model.calls) == ("refused", 0)
    assert outcome.reason.endswith("The budget did not allow a summary.")
    assert (await full_env.load_transcript()).records == ()


async def test_a_summariser_that_failed_too_often_is_given_up_without_hiding_anything(
    full_env: AgentEnvironment,
) -> None:
    request = make_edit_request(full_env, action="compact").replace(skip_summary=True)
    outcome = await edited(full_env, request, "It silted up.")
    assert (outcome.state, full_env.model.calls) == ("refused", 0)
    assert outcome.reason.startswith("not compacted: no summary could be made")
    assert (await full_env.load_transcript()).records == ()


async def test_a_short_conversation_is_not_worth_a_summary(env: AgentEnvironment) -> None:
    await env.commit_conversation([build_user_message("m1", "Why did it silt up?")])
    outcome = await edited(env, make_edit_request(env, action="compact"), "It silted up.")
    assert (outcome.state, env.model.calls) == ("refused", 0)
    assert outcome.reason.startswith("not compacted: a compaction would save too little")


async def test_instructions_that_are_not_in_the_store_are_refused_before_anybody_is_asked(
    full_env: AgentEnvironment,
) -> None:
    outcome = await edited(
        full_env, make_edit_request(full_env, action="compact", instructions="0" * 64), "It silted up."
    )
    assert (outcome.state, full_env.model.calls) == ("refused", 0)
    assert outcome.reason.startswith("the instructions are not in the task's store: ")


async def test_instructions_that_are_too_long_are_refused_before_anybody_is_asked(
    full_env: AgentEnvironment,
) -> None:
    blob = await full_env.store.put_text("x" * (MAX_INSTRUCTIONS_CHARACTERS + 1), full_env.ref.scope)
    outcome = await edited(full_env, make_edit_request(full_env, action="compact", instructions=blob), "It silted up.")
    assert (outcome.state, full_env.model.calls) == ("refused", 0)
    assert outcome.reason == "the instructions have 4,001 characters; the maximum is 4,000"


async def test_pins_are_set_and_taken_back_once_each(full_env: AgentEnvironment) -> None:
    pin, unpin = (
        make_edit_request(full_env, action="pin", message="m4"),
        make_edit_request(full_env, 2, action="unpin", message="m4"),
    )
    assert await edited(full_env, pin) == await edited(full_env, pin) == EditOutcome(state="done")
    assert get_pinned_message_ids(await full_env.load_transcript()) == {"m4"}
    assert await edited(full_env, unpin) == await edited(full_env, unpin) == EditOutcome(state="done")
    transcript = await full_env.load_transcript()
    assert get_pinned_message_ids(transcript) == frozenset()
    assert [record.id for record in transcript.records] == ["edit-1", "edit-2"]


async def test_a_restored_compaction_gives_the_view_back_and_the_next_edit_can_compact_again(
    full_env: AgentEnvironment,
) -> None:
    before = build_model_view(await full_env.load_transcript())
    made = (await edited(full_env, make_edit_request(full_env, action="compact"), "It silted up.")).compaction
    assert made is not None
    restore = make_edit_request(full_env, 2, known=1, action="restore", compaction=made.compaction_id[:8])
    assert await edited(full_env, restore) == await edited(full_env, restore) == EditOutcome(state="done")
    assert build_model_view(await full_env.load_transcript()) == before
    again = await edited(full_env, make_edit_request(full_env, 3, known=1, action="compact"), "It silted up.")
    assert (again.state, full_env.model.calls) == ("done", 1)
    assert build_model_view(await full_env.load_transcript()) != before


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (
            {"action": "pin", "message": "m99"},
            "there is no message 'm99' in this conversation; its messages are: m1 to m27",
        ),
        ({"action": "unpin", "message": "m4"}, "message m4 is not pinned"),
        (
            {"action": "restore", "compaction": "ab"},
            "no compaction has an id that begins with 'ab'. Ids of this agent's compactions: none",
        ),
    ],
)
async def test_what_cannot_be_done_is_refused_and_takes_the_run_away_from_nobody(
    edit: dict[str, str], reason: str, full_env: AgentEnvironment
) -> None:
    working = await full_env.make_tool_context()
    assert await edited(full_env, make_edit_request(full_env, 1, known=0, **edit)) == EditOutcome(
        state="refused", reason=reason
    )
    transcript = await full_env.load_transcript()
    await full_env.store.commit_message(working.fence, transcript.version, build_user_message("m28", "Go on."))


async def test_an_edit_takes_the_run_over_from_an_attempt_of_an_earlier_leg(full_env: AgentEnvironment) -> None:
    straggler = await full_env.make_tool_context()
    await edited(full_env, make_edit_request(full_env, action="pin", message="m4"))
    version = (await full_env.load_transcript()).version
    with pytest.raises(StaleFenceError):
        await full_env.store.commit_message(straggler.fence, version, build_user_message("m28", "Go on."))
