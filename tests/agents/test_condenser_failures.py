"""What a compaction does when a part of it fails: everything stays as it was, or the next rung helps."""

from collections.abc import Awaitable, Callable

import pytest

from tests.agents.full_context import (
    SPENT_BEFORE,
    compressed,
    passages_of,
    request_size,
    summary,
)
from tests.agents.office import NAME, TASK, Office
from tests.unit.histories import prose
from waystation.agents.call_ledger import MOST_UNANSWERED
from waystation.agents.compactor import NO_MONEY_FOR_SUMMARY
from waystation.context.outcome import Status
from waystation.context.transcript import Text, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelRejected, ModelUnavailable, RedactionFailed, StaleFenceError
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.testing import ScriptedModel, make_scripted_response

RUN_ID = f"{TASK}/research-1"


class Rivalled(ScriptedModel):
    def __init__(self, meanwhile: Callable[[], Awaitable[object]]) -> None:
        super().__init__([summary()])
        self._meanwhile = meanwhile

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await self._meanwhile()
        return await super().complete(request)


async def test_an_attempt_that_was_taken_over_changes_nothing(full: Office) -> None:
    with pytest.raises(StaleFenceError):
        await compressed(full, Rivalled(full.site))
    assert (await full.transcript()).records == ()
    assert (passages_of(full), await full.store.count_pending_passages()) == ([], 0)


@pytest.mark.parametrize(
    ("reply", "status"),
    [
        (summary(""), Status.FAILED_EMPTY_SUMMARY),
        (make_scripted_response(usage=Usage(input=9_000, output=400)), Status.FAILED_EMPTY_SUMMARY),
        (summary("I will not.", stop=StopReason.REFUSAL), Status.FAILED_EMPTY_SUMMARY),
        (summary(prose(20_000)), Status.FAILED_INFLATED),
        (
            make_scripted_response(Text(text="I'm sorry, I cannot do that."), usage=Usage(input=9_000, output=400)),
            Status.FAILED_CHECK,
        ),
    ],
    ids=["blank", "nothing", "refused", "too long", "error"],
)
async def test_a_rejected_summary_leads_to_truncation_and_its_charge_is_kept(
    full: Office, reply: ModelResponse, status: Status
) -> None:
    outcome = await compressed(full, ScriptedModel([reply]))
    assert outcome.status is Status.TRUNCATED
    assert outcome.notes[0].startswith(f"A summary was rejected ({status})")
    assert outcome.totals.spent.tokens == SPENT_BEFORE + 9_400
    assert outcome.tokens_after == await request_size(full) < full.terms.trigger
    assert outcome.passages == len(full.memory.passages) > 0
    assert NAME not in "".join(passages_of(full))


async def test_a_summariser_that_fails_for_good_leads_to_truncation_without_a_charge(full: Office) -> None:
    outcome = await compressed(full, ScriptedModel([ModelRejected("no such model")]))
    assert (outcome.status, outcome.notes) == (Status.TRUNCATED, ("The summariser failed: no such model",))
    assert (outcome.totals.spent.tokens, outcome.totals.possibly_billed) == (SPENT_BEFORE, 0)


async def test_a_summariser_that_is_busy_is_tried_again_and_everything_stays_as_it_was(full: Office) -> None:
    for _ in range(2):
        with pytest.raises(ModelUnavailable):
            await compressed(full, ScriptedModel([ModelUnavailable("overloaded", possibly_billed=False)]))
    assert (await full.transcript()).records == ()
    assert (await compressed(full, ScriptedModel([summary()]))).status is Status.COMPRESSED


async def test_a_summariser_without_a_reply_is_asked_so_often_and_then_the_conversation_is_truncated(
    full: Office,
) -> None:
    for _ in range(MOST_UNANSWERED - 1):
        with pytest.raises(ModelUnavailable):
            await compressed(full, ScriptedModel([ModelUnavailable("cut")]), limit=Limit(tokens=1_000_000))
    outcome = await compressed(full, ScriptedModel([ModelUnavailable("cut")]), limit=Limit(tokens=1_000_000))
    assert outcome.status is Status.TRUNCATED
    assert outcome.notes[0].endswith("; the last one: cut")


async def test_a_summariser_that_is_given_up_is_not_asked(full: Office) -> None:
    model = ScriptedModel([])
    outcome = await compressed(full, model, give_up_summary=True)
    assert (outcome.status, model.calls) == (Status.TRUNCATED, 0)


async def test_no_summary_is_bought_where_the_next_call_could_not_be_paid_behind_it(full: Office) -> None:
    probe = ScriptedModel([ModelUnavailable("busy", possibly_billed=False)])
    with pytest.raises(ModelUnavailable):
        await compressed(full, probe)
    asked = probe.requests[0]
    model = ScriptedModel([])
    limit = Limit(tokens=SPENT_BEFORE + await probe.count_tokens(asked) + asked.max_output)
    outcome = await compressed(full, model, limit=limit)
    assert (outcome.status, model.calls) == (Status.TRUNCATED, 0)
    assert outcome.notes == (NO_MONEY_FOR_SUMMARY,)


@pytest.mark.parametrize("give_up", [False, True])
async def test_without_redaction_nothing_is_sent_hidden_or_stored(full: Office, give_up: bool) -> None:
    full.redactor.failing = True
    model = ScriptedModel([summary()])
    with pytest.raises(RedactionFailed):
        await compressed(full, model, give_up_summary=give_up)
    assert model.calls == 0
    assert (await full.transcript()).compactions == ()
    assert (passages_of(full), await full.store.count_pending_passages()) == ([], 0)


async def test_a_summary_that_cannot_be_redacted_is_not_used_and_its_cost_is_not_forgotten(full: Office) -> None:
    def answer(_: ModelRequest) -> ModelResponse:
        full.redactor.failing = True
        return summary()

    with pytest.raises(RedactionFailed):
        await compressed(full, ScriptedModel(answer))
    assert (await full.transcript()).records == ()
    assert (await full.store.totals(RUN_ID)).possibly_billed > 9_000


async def test_what_cannot_be_made_smaller_is_named(office: Office) -> None:
    await office.said([build_user_message("m1", prose(16_000))])
    outcome = await compressed(office, ScriptedModel([]))
    assert outcome.status is Status.CANNOT_FIT
    assert outcome.notes[0].startswith("These parts cannot be made smaller: system prompt and tools")
