import pytest

from tests.agents.office import SECRET, SECRET_PLACEHOLDER, TASK, Office, use
from tests.readers import ANYONE
from waystation.agents.deliverables import Finding, ReportDraft, ResearchFindings
from waystation.kernel.amount import Limit
from waystation.kernel.errors import RedactionFailed
from waystation.models.ports import ModelResponse
from waystation.privacy.policy import TextDestination
from waystation.reports.oversight import Reviewer
from waystation.reports.report import Faults
from waystation.tasks.reviews import Reviewed, ReviewRequest
from waystation.testing import ScriptedModel, make_scripted_response

DRAFT = ReportDraft(title="The research", summary=f"Silt, says {SECRET} [harbour.md:2-9].")
FAULT = {"kind": "unsupported", "text": f"Nobody found what {SECRET} says."}


def judged(*faults: object) -> ModelResponse:
    return make_scripted_response(use("review_report", "r1", faults=list(faults)))


async def reviewed(
    office: Office, model: ScriptedModel, *, may_send_back: bool = True, limit: int = 60_000
) -> Reviewed:
    office.model = model
    store = office.store
    reviewer = Reviewer(office.metered, store, office.redactor, office.publisher.check)
    request = ReviewRequest(
        writer=office.run_ref("writing"),
        number=1,
        model="small",
        limit=Limit(tokens=limit),
        may_send_back=may_send_back,
    )
    return await reviewer.review(request)


@pytest.fixture
async def drafted(office: Office) -> Office:
    await office.store.hand_in((await office.site("writing")).fence, TASK, DRAFT)
    return office


async def told(office: Office) -> list[str]:
    return [message.text for message in (await office.transcript("writing")).messages if message.of_the_platform]


async def test_the_writer_hears_of_what_code_and_model_found_and_the_store_keeps_it(drafted: Office) -> None:
    found = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    await drafted.store.hand_in((await drafted.site("research-1")).fence, TASK, ResearchFindings(findings=(found,)))
    model = ScriptedModel([judged(FAULT)])
    made = await reviewed(drafted, model)
    assert (made.review.faults, made.review.sent_back, made.notes) == (3, True, ())
    (text,) = await told(drafted)
    assert "- citation: [harbour.md:2-9]: the document has 2 lines\n- unsupported: None of the 1 findings" in text
    assert text.endswith(f"- unsupported: Nobody found what {SECRET_PLACEHOLDER} says.</platform>")
    opening = model.requests[0].messages[0].text
    assert "the document has 2 lines\n- unsupported: None of the 1 findings is cited.\n1 of 1 findings" in opening
    assert SECRET not in opening
    kept = Faults.model_validate_json(await drafted.store.get_text(str(made.review.found), ANYONE))
    assert [fault.kind for fault in kept.faults] == ["citation", "unsupported", "unsupported"]
    totals = (await drafted.store.payments(TASK, ANYONE)).bill
    assert [(line.agent, line.kind, line.calls) for line in totals.lines] == [("review-1", "review", 1)]


async def test_a_retry_asks_nothing_and_tells_nothing_twice(drafted: Office) -> None:
    first = await reviewed(drafted, ScriptedModel([judged(FAULT)]))
    assert await reviewed(drafted, ScriptedModel([])) == first
    assert len(await told(drafted)) == 1


async def test_a_retry_after_a_crash_behind_the_reply_makes_no_call(drafted: Office) -> None:
    def answer(_: object) -> ModelResponse:
        drafted.redactor.failing_at = frozenset({TextDestination.CONTRACT})
        return judged()

    with pytest.raises(RedactionFailed):
        await reviewed(drafted, ScriptedModel(answer))
    drafted.redactor.failing_at = frozenset()
    assert (await reviewed(drafted, ScriptedModel([]))).review.sent_back


async def test_a_writer_that_may_not_be_sent_back_hears_nothing(drafted: Office) -> None:
    made = await reviewed(drafted, ScriptedModel([judged(FAULT)]), may_send_back=False)
    assert (made.review.faults, made.review.sent_back) == (2, False)
    assert await told(drafted) == []


async def test_without_money_for_a_model_code_alone_checks(drafted: Office) -> None:
    made = await reviewed(drafted, ScriptedModel([]), limit=600)
    assert made.notes == ("The budget was too small for a review of the report by a model; code alone checked it.",)
    assert (made.review.faults, made.review.sent_back) == (1, True)
