"""Z2 of an agent run: a summary that failed is not asked for again at once, except by a person."""

from collections.abc import Sequence

import pytest

from tests.agents.full_context import SPENT_BEFORE, compressed, conversation, request_size, summary
from tests.agents.office import Office
from tests.unit.histories import calls, prose, results
from waystation.context.outcome import CompactionOutcome, ContextEdit, EditRequest, Status
from waystation.context.transcript import SummaryFailureRecord, build_user_message
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelError, ModelRejected, RedactionFailed
from waystation.models.ports import ModelResponse
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.tasks.context_editor import Editor
from waystation.testing import PlainRedactor, ScriptedModel

BLANK = summary("")
LATEST = 8_500
"""Tokens of a request that stays: beside it, a truncation leaves little room."""


class Wearied(PlainRedactor):
    """Fails after so many calls."""

    def __init__(self, calls: int) -> None:
        super().__init__({})
        self.left = calls

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        if not self.left:
            raise RedactionFailed("the redactor is weary")
        self.left -= 1
        return await super().redact(texts, place, tenant)


async def crowd(office: Office) -> None:
    """A context of which a truncation hides just enough."""
    await office.said([*conversation(result_tokens=600), build_user_message("m40", prose(LATEST))])


async def fill(office: Office) -> None:
    """Let the agent work until its context is full again."""
    while await request_size(office) < office.terms.trigger:
        number = len((await office.transcript()).messages) + 100
        turn = calls(f"m{number}", f"d{number}", tool="recall"), results(f"m{number + 1}", **{f"d{number}": prose(400)})
        await office.said(turn)


async def automatic(office: Office, *script: ModelResponse | ModelError) -> CompactionOutcome:
    known = len((await office.transcript()).compactions)
    return await compressed(office, ScriptedModel(script), known_records=known)


async def failures(office: Office) -> int:
    return sum(isinstance(record, SummaryFailureRecord) for record in (await office.transcript()).records)


@pytest.mark.parametrize("failing", [BLANK, ModelRejected("no such model")], ids=["rejected", "no answer"])
async def test_z2_after_a_failure_no_model_is_called_until_the_conversation_has_grown_enough(
    office: Office, failing: ModelResponse | ModelError
) -> None:
    await crowd(office)
    assert (await automatic(office, failing)).status is Status.TRUNCATED
    assert office.model.calls == 1
    await fill(office)
    outcome = await automatic(office, summary())
    assert (outcome.status, office.model.calls) == (Status.TRUNCATED, 0)
    (note,) = outcome.notes
    assert note.startswith("No summary was tried: the last one failed, and since then too little was said, by ")
    await fill(office)
    await office.said([calls("m900", "e1", tool="recall"), results("m901", e1=prose(2_500))])
    assert (await automatic(office, summary())).status is Status.COMPRESSED
    assert office.model.calls == 1


async def test_z2_a_manual_one_tries_also_after_three_that_failed_and_its_success_lets_others_follow(
    office: Office,
) -> None:
    await office.said(conversation())
    for _ in range(6):
        await automatic(office, BLANK)
        await fill(office)
    assert await failures(office) == 3
    outcome = await automatic(office, summary())
    assert (outcome.status, office.model.calls) == (Status.TRUNCATED, 0)
    assert outcome.notes == ("No summary was tried: 3 in a row had failed; `waystation compact` asks for one.",)
    await fill(office)
    edit = ContextEdit(id="edit-1", agent="research-1", action="compact", asked_at=office.clock.now)
    asked = EditRequest(
        run=office.run_ref(),
        terms=office.terms,
        limit=office.limit,
        edit=edit,
        known_records=len((await office.transcript()).compactions),
    )
    office.model = ScriptedModel([summary()])
    assert (await Editor(office.condenser).edit(asked)).state == "done"
    assert office.model.calls == 1
    await fill(office)
    assert (await automatic(office, summary())).status is Status.COMPRESSED


async def test_an_attempt_after_a_crash_does_not_pay_a_summary_again_that_was_rejected(full: Office) -> None:
    full.redactor = Wearied(3)
    with pytest.raises(RedactionFailed):
        await automatic(full, BLANK)
    assert full.model.calls == 1
    assert (await full.transcript()).compactions == ()
    full.redactor = PlainRedactor({})
    outcome = await automatic(full, BLANK)
    assert (outcome.status, full.model.calls) == (Status.TRUNCATED, 0)
    assert outcome.totals.spent.tokens == SPENT_BEFORE + 9_400


async def test_a_summariser_that_was_given_up_counts_as_one_that_failed(full: Office) -> None:
    outcome = await compressed(full, ScriptedModel([]), give_up_summary=True)
    assert (outcome.status, await failures(full)) == (Status.TRUNCATED, 1)


async def test_what_cost_no_call_is_not_held_against_the_next_summary(full: Office) -> None:
    outcome = await compressed(full, ScriptedModel([]), limit=Limit(tokens=SPENT_BEFORE + 2_000))
    assert (outcome.status, await failures(full)) == (Status.TRUNCATED, 0)
