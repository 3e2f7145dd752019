"""What a compaction does when a part of it fails: everything stays as it was, or the next rung helps."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.agent_environment import NAME, TASK, AgentEnvironment
from tests.support.conversations import make_filler_text
from tests.support.full_context import (
    CONVERSATION_TOKENS_SPENT,
    estimate_request_size,
    list_passage_texts,
    make_summary_response,
    run_compaction,
)
from waystation.agents.call_ledger import MAX_UNANSWERED_CALLS
from waystation.agents.compactor import NO_MONEY_FOR_SUMMARY
from waystation.context.compaction import CompactionStatus
from waystation.context.transcript import Text, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelRejected, ModelUnavailable, RedactionFailed, StaleFenceError
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.testing.doubles import ScriptedModel, make_scripted_response

RUN_ID = f"{TASK}/research-1"


class Rivalled(ScriptedModel):
    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__([make_summary_response()])
        self._meanwhile = meanwhile

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await self._meanwhile()
        return await super().complete(request)


async def test_an_attempt_that_was_taken_over_changes_nothing(full_env: AgentEnvironment) -> None:
    with pytest.raises(StaleFenceError):
        await run_compaction(full_env, Rivalled(full_env.make_tool_context))
    assert (await full_env.load_transcript()).records == ()
    assert (list_passage_texts(full_env), await full_env.store.count_pending_passages()) == ([], 0)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (make_summary_response(""), CompactionStatus.FAILED_EMPTY_SUMMARY),
        (make_scripted_response(usage=Usage(input=9_000, output=400)), CompactionStatus.FAILED_EMPTY_SUMMARY),
        (make_summary_response("I will not.", stop=StopReason.REFUSAL), CompactionStatus.FAILED_EMPTY_SUMMARY),
        (make_summary_response(make_filler_text(20_000)), CompactionStatus.FAILED_INFLATED),
        (
            make_scripted_response(Text(text="I'm sorry, I cannot do that."), usage=Usage(input=9_000, output=400)),
            CompactionStatus.FAILED_CHECK,
        ),
    ],
    ids=["blank", "nothing", "refused", "too long", "error"],
)
async def test_a_rejected_summary_leads_to_truncation_and_its_charge_is_kept(
    full_env: AgentEnvironment, reply: ModelResponse, status: CompactionStatus
) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([reply]))
    assert outcome.status is CompactionStatus.TRUNCATED
    assert outcome.notes[0].startswith(f"A summary was rejected ({status}, ")
    assert outcome.totals.spent.tokens == CONVERSATION_TOKENS_SPENT + 9_400
    assert outcome.tokens_after == await estimate_request_size(full_env) < full_env.terms.trigger
    assert outcome.passages == len(full_env.memory.passages) > 0
    assert NAME not in "".join(list_passage_texts(full_env))


async def test_a_summariser_that_fails_for_good_leads_to_truncation_without_a_charge(
    full_env: AgentEnvironment,
) -> None:
    outcome = await run_compaction(full_env, ScriptedModel([ModelRejected("no such model")]))
    assert (outcome.status, outcome.notes) == (CompactionStatus.TRUNCATED, ("The summariser failed: no such model",))
    assert (outcome.totals.spent.tokens, outcome.totals.possibly_billed) == (CONVERSATION_TOKENS_SPENT, 0)


async def test_a_summariser_that_is_busy_is_tried_again_and_everything_stays_as_it_was(
    full_env: AgentEnvironment,
) -> None:
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await run_compaction(full_env, ScriptedModel([ModelUnavailable("overloaded", possibly_billed=False)]))
    assert (await full_env.load_transcript()).records == ()
    assert (
        await run_compaction(full_env, ScriptedModel([make_summary_response()]))
    ).status is CompactionStatus.COMPRESSED


async def test_a_summariser_without_a_reply_is_asked_so_often_and_then_the_conversation_is_truncated(
    full_env: AgentEnvironment,
) -> None:
    for _ in range(MAX_UNANSWERED_CALLS - 1):
        with pytest.raises(ModelUnavailable):
            await run_compaction(full_env, ScriptedModel([ModelUnavailable("cut")]), limit=Limit(tokens=1_000_000))
    outcome = await run_compaction(full_env, ScriptedModel([ModelUnavailable("cut")]), limit=Limit(tokens=1_000_000))
    assert outcome.status is CompactionStatus.TRUNCATED
    assert outcome.notes[0].endswith("; the last one: cut")


async def test_a_summariser_that_is_given_up_is_not_asked(full_env: AgentEnvironment) -> None:
    model = ScriptedModel([])
    outcome = await run_compaction(full_env, model, give_up_summary=True)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 0)


async def test_no_summary_is_bought_where_the_next_call_could_not_be_paid_behind_it(
    full_env: AgentEnvironment,
) -> None:
    probe = ScriptedModel([ModelUnavailable("busy", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await run_compaction(full_env, probe)
    asked = probe.requests[0]
    model = ScriptedModel([])
    limit = Limit(tokens=CONVERSATION_TOKENS_SPENT + await probe.count_tokens(asked) + asked.max_output)
    outcome = await run_compaction(full_env, model, limit=limit)
    assert (outcome.status, model.calls) == (CompactionStatus.TRUNCATED, 0)
    assert outcome.notes == (NO_MONEY_FOR_SUMMARY,)


@pytest.mark.parametrize("give_up", [False, True])
async def test_without_redaction_nothing_is_sent_hidden_or_stored(full_env: AgentEnvironment, give_up: bool) -> None:
    full_env.redactor.failing = True
    model = ScriptedModel([make_summary_response()])
    with pytest.raises(RedactionFailed):
        await run_compaction(full_env, model, give_up_summary=give_up)
    assert model.calls == 0
    assert (await full_env.load_transcript()).compactions == ()
    assert (list_passage_texts(full_env), await full_env.store.count_pending_passages()) == ([], 0)


async def test_a_summary_that_cannot_be_redacted_is_not_used_and_its_cost_is_not_forgotten(
    full_env: AgentEnvironment,
) -> None:
    def answer(_: ModelRequest) -> ModelResponse:
        full_env.redactor.failing = True
        return make_summary_response()

    with pytest.raises(RedactionFailed):
        await run_compaction(full_env, ScriptedModel(answer))
    assert (await full_env.load_transcript()).records == ()
    assert (await full_env.store.get_run_usage(RUN_ID)).possibly_billed > 9_000


async def test_what_cannot_be_made_smaller_is_named(env: AgentEnvironment) -> None:
    await env.commit_conversation([build_user_message("m1", make_filler_text(16_000))])
    outcome = await run_compaction(env, ScriptedModel([]))
    assert outcome.status is CompactionStatus.CANNOT_FIT
    assert outcome.notes[0].startswith("These parts cannot be made smaller: system prompt and tools")
