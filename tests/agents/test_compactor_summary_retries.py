"""Z2 of an agent run: a summary that failed is not asked for again at once, except by a person."""

from collections.abc import Sequence

import pytest

from tests.support.agent_environment import AgentEnvironment
from tests.support.conversations import make_call_message, make_filler_text, make_result_message
from tests.support.full_context import (
    CONVERSATION_TOKENS_SPENT,
    estimate_request_size,
    make_conversation,
    make_summary_response,
    run_compaction,
)
from waystation.agents.compaction_request import EditRequest
from waystation.context.compaction import CompactionOutcome, CompactionStatus, ContextEdit
from waystation.context.transcript import SummaryFailureRecord, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelError, ModelRejected, RedactionFailed
from waystation.models.ports import ModelResponse
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.tasks.context_editor import ContextEditor
from waystation.testing.doubles import PlainRedactor, ScriptedModel

BLANK = make_summary_response("")
LATEST = 8_500
"""Tokens of a request that stays: beside it, a truncation leaves little room."""


class Wearied(PlainRedactor):
    """Fails after so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__({})
        self.left = calls

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        if not self.left:
            raise RedactionFailed("the redactor is weary")
        self.left -= 1
        return await super().redact(texts, destination, tenant)


async def crowd(env: AgentEnvironment) -> None:
    """A context of which a truncation hides just enough."""
    await env.commit_conversation(
        [*make_conversation(result_tokens=600), build_user_message("m40", make_filler_text(LATEST))]
    )


async def fill(env: AgentEnvironment) -> None:
    """Let the agent work until its context is full again."""
    while await estimate_request_size(env) < env.terms.trigger:
        number = len((await env.load_transcript()).messages) + 100
        turn = (
            make_call_message(f"m{number}", f"d{number}", tool="recall"),
            make_result_message(f"m{number + 1}", **{f"d{number}": make_filler_text(400)}),
        )
        await env.commit_conversation(turn)


async def automatic(env: AgentEnvironment, *script: ModelResponse | ModelError) -> CompactionOutcome:
    known = len((await env.load_transcript()).compactions)
    return await run_compaction(env, ScriptedModel(script), known_records=known)


async def failures(env: AgentEnvironment) -> int:
    return sum(isinstance(record, SummaryFailureRecord) for record in (await env.load_transcript()).records)


@pytest.mark.parametrize("failing", [BLANK, ModelRejected("no such model")], ids=["rejected", "no answer"])
async def test_z2_after_a_failure_no_model_is_called_until_the_conversation_has_grown_enough(
    env: AgentEnvironment, failing: ModelResponse | ModelError
) -> None:
    await crowd(env)
    assert (await automatic(env, failing)).status is CompactionStatus.TRUNCATED
    assert env.model.calls == 1
    await fill(env)
    outcome = await automatic(env, make_summary_response())
    assert (outcome.status, env.model.calls) == (CompactionStatus.TRUNCATED, 0)
    (note,) = outcome.notes
    assert note.startswith("No summary was requested, because the last attempt failed. The next attempt follows ")
    await fill(env)
    await env.commit_conversation(
        [make_call_message("m900", "e1", tool="recall"), make_result_message("m901", e1=make_filler_text(2_500))]
    )
    assert (await automatic(env, make_summary_response())).status is CompactionStatus.COMPRESSED
    assert env.model.calls == 1


async def test_z2_a_manual_one_tries_also_after_three_that_failed_and_its_success_lets_others_follow(
    env: AgentEnvironment,
) -> None:
    await env.commit_conversation(make_conversation())
    for _ in range(6):
        await automatic(env, BLANK)
        await fill(env)
    assert await failures(env) == 3
    outcome = await automatic(env, make_summary_response())
    assert (outcome.status, env.model.calls) == (CompactionStatus.TRUNCATED, 0)
    assert outcome.notes == (
        "No summary was requested, because the last 3 attempts failed. `waystation compact` requests a summary.",
    )
    await fill(env)
    edit = ContextEdit(id="edit-1", agent="research-1", action="compact", requested_at=env.clock.now)
    asked = EditRequest(
        run=env.run_ref(),
        config=env.terms,
        limit=env.limit,
        edit=edit,
        known_records=len((await env.load_transcript()).compactions),
    )
    env.model = ScriptedModel([make_summary_response()])
    assert (await ContextEditor(env.compactor).edit(asked)).state == "done"
    assert env.model.calls == 1
    await fill(env)
    assert (await automatic(env, make_summary_response())).status is CompactionStatus.COMPRESSED


async def test_an_attempt_after_a_crash_does_not_pay_a_summary_again_that_was_rejected(
    full_env: AgentEnvironment,
) -> None:
    full_env.redactor = Wearied(3)
    with pytest.raises(RedactionFailed):
        await automatic(full_env, BLANK)
    assert full_env.model.calls == 1
    assert (await full_env.load_transcript()).compactions == ()
    full_env.redactor = PlainRedactor({})
    outcome = await automatic(full_env, BLANK)
    assert (outcome.status, full_env.model.calls) == (CompactionStatus.TRUNCATED, 0)
    assert outcome.totals.spent.tokens == CONVERSATION_TOKENS_SPENT + 9_400


async def test_a_summariser_that_was_given_up_counts_as_one_that_failed(full_env: AgentEnvironment) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([]), give_up_summary=True)
    assert (outcome.status, await failures(full_env)) == (CompactionStatus.TRUNCATED, 1)


async def test_what_cost_no_call_is_not_held_against_the_next_summary(full_env: AgentEnvironment) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([]), limit=Limit(tokens=CONVERSATION_TOKENS_SPENT + 2_000))
    assert (outcome.status, await failures(full_env)) == (CompactionStatus.TRUNCATED, 0)
