import pytest

from tests.support.agent_environment import SECRET, SECRET_PLACEHOLDER, TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.documents.citations import CitedDocument
from waystation.kernel.amount import Limit
from waystation.kernel.errors import RedactionFailed
from waystation.models.ports import ModelResponse
from waystation.privacy.policy import TextDestination
from waystation.reports.report import MAX_FAULT_CHARACTERS, FaultList
from waystation.reports.reviewers import (
    MAX_CITED_CHARACTERS,
    MAX_CITED_CLAIMS,
    MAX_FAULTS,
    MAX_JUDGED_FAULTS,
    ReportReviewer,
    render_cited_claims,
)
from waystation.tasks.reviews import ReviewRequest, ReviewResult
from waystation.testing.doubles import ScriptedModel, make_scripted_response

DRAFT = ReportDraft(title="The research", summary=f"Silt, says {SECRET} [harbour.md:2-9].")
FAULT = {"kind": "unsupported", "text": f"Nobody found what {SECRET} says."}


def judged(*faults: object) -> ModelResponse:
    return make_scripted_response(make_tool_use("review_report", "r1", faults=list(faults)))


async def reviewed(
    env: AgentEnvironment, model: ScriptedModel, *, may_send_back: bool = True, limit: int = 60_000
) -> ReviewResult:
    env.model = model
    store = env.store
    reviewer = ReportReviewer(env.metered_model, store, env.redactor, env.publisher.check)
    request = ReviewRequest(
        writer=env.run_ref("writing"),
        number=1,
        model="small",
        limit=Limit(tokens=limit),
        may_send_back=may_send_back,
    )
    return await reviewer.review(request)


@pytest.fixture
async def drafted(env: AgentEnvironment) -> AgentEnvironment:
    await env.store.commit_deliverable((await env.make_tool_context("writing")).fence, TASK, DRAFT)
    return env


async def told(env: AgentEnvironment) -> list[str]:
    return [message.text for message in (await env.load_transcript("writing")).messages if message.is_platform_message]


async def test_the_writer_hears_of_what_code_and_model_found_and_the_store_keeps_it(drafted: AgentEnvironment) -> None:
    found = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    await drafted.store.commit_deliverable(
        (await drafted.make_tool_context("research-1")).fence, TASK, ResearchFindings(findings=(found,))
    )
    model = ScriptedModel([judged(FAULT)])
    made = await reviewed(drafted, model)
    assert (made.review.faults, made.review.sent_back, made.notes) == (3, True, ())
    (text,) = await told(drafted)
    assert "- citation: [harbour.md:2-9]: the document has 2 lines\n- unsupported: The only finding" in text
    assert text.endswith(f"- unsupported: Nobody found what {SECRET_PLACEHOLDER} says.</platform>")
    opening = model.requests[0].messages[0].text
    assert (
        "the document has 2 lines\n- unsupported: The only finding is not cited.\n1 of 1 findings are cited" in opening
    )
    assert "<length>\nAt most about 300 words for 1 finding" in opening
    assert '<found step="research-2" title="The research-2">\n- nothing\n</found>' in opening
    assert SECRET not in opening
    kept = FaultList.model_validate_json(await drafted.store.get_text(str(made.review.faults_hash), SYSTEM_SCOPE))
    assert [fault.kind for fault in kept.faults] == ["citation", "unsupported", "unsupported"]
    totals = (await drafted.store.list_task_charges(TASK, SYSTEM_SCOPE)).cost_breakdown
    assert [(line.agent, line.kind, line.calls) for line in totals.lines] == [("review-1", "review", 1)]


async def test_a_sentence_with_a_figure_that_its_lines_lack_is_a_fault_of_the_draft(env: AgentEnvironment) -> None:
    draft = ReportDraft(title="T", summary="The harbour was dug in 1812 [harbour.md:1-1].")
    await env.store.commit_deliverable((await env.make_tool_context("writing")).fence, TASK, draft)
    await reviewed(env, ScriptedModel([judged()]))
    (text,) = await told(env)
    assert '- unsupported: "1812" is not in line 1 of harbour.md' in text


async def test_a_fault_that_is_too_long_is_cut_and_does_not_cost_the_review(drafted: AgentEnvironment) -> None:
    long = {"kind": "unsupported", "text": f"{'x' * (MAX_FAULT_CHARACTERS - 6)} {SECRET} " * 2}
    made = await reviewed(drafted, ScriptedModel([judged(long)]))
    assert (made.review.faults, made.notes) == (2, ())
    kept = FaultList.model_validate_json(await drafted.store.get_text(str(made.review.faults_hash), SYSTEM_SCOPE))
    assert kept.faults[-1].text == f"{'x' * (MAX_FAULT_CHARACTERS - 6)} …", "no placeholder is cut in two"


async def test_faults_of_code_do_not_crowd_out_those_of_the_model(drafted: AgentEnvironment) -> None:
    summary = " ".join(f"Fact {number} [harbour.md:{number}-{number}]." for number in range(11, 51))
    await drafted.store.commit_deliverable(
        (await drafted.make_tool_context("writing")).fence, TASK, DRAFT.replace(summary=summary)
    )
    made = await reviewed(drafted, ScriptedModel([judged(*[{"kind": "form", "text": str(n)} for n in range(30)])]))
    kept = FaultList.model_validate_json(await drafted.store.get_text(str(made.review.faults_hash), SYSTEM_SCOPE))
    kinds = [fault.kind for fault in kept.faults]
    assert (len(kinds), kinds.count("form")) == (MAX_FAULTS, MAX_JUDGED_FAULTS)


async def test_a_retry_asks_nothing_and_tells_nothing_twice(drafted: AgentEnvironment) -> None:
    first = await reviewed(drafted, ScriptedModel([judged(FAULT)]))
    assert await reviewed(drafted, ScriptedModel([])) == first
    assert len(await told(drafted)) == 1


async def test_a_retry_after_a_crash_behind_the_reply_makes_no_call(drafted: AgentEnvironment) -> None:
    def answer(_: object) -> ModelResponse:
        drafted.redactor.failing_at = frozenset({TextDestination.TASK_BRIEF})
        return judged()

    with pytest.raises(RedactionFailed):
        await reviewed(drafted, ScriptedModel(answer))
    drafted.redactor.failing_at = frozenset()
    assert (await reviewed(drafted, ScriptedModel([]))).review.sent_back


async def test_a_writer_that_may_not_be_sent_back_hears_nothing(drafted: AgentEnvironment) -> None:
    made = await reviewed(drafted, ScriptedModel([judged(FAULT)]), may_send_back=False)
    assert (made.review.faults, made.review.sent_back) == (2, False)
    assert await told(drafted) == []


async def test_without_money_for_a_model_code_alone_checks(drafted: AgentEnvironment) -> None:
    made = await reviewed(drafted, ScriptedModel([]), limit=600)
    assert made.notes == ("The budget was too small for a model to review the report, so only code checked it.",)
    assert (made.review.faults, made.review.sent_back) == (1, True)


async def test_a_reviewer_reads_the_lines_that_a_sample_of_claims_cites(env: AgentEnvironment) -> None:
    sections = tuple(
        ReportSection(heading=f"Part {number}", markdown=f"Claim {number} [harbour.md:1-2].") for number in range(30)
    )
    draft = DRAFT.replace(summary=f"The key is {SECRET} [keeper.md:2-2]. So is [gone.md:1-1].", sections=sections)
    await env.store.commit_deliverable((await env.make_tool_context("writing")).fence, TASK, draft)
    model = ScriptedModel([judged()])
    await reviewed(env, model)
    opening = model.requests[0].messages[0].text
    cited = opening.split("<cited")[1].split("</cited>")[0]
    assert cited.startswith(f' shown="{MAX_CITED_CLAIMS}" total="31" note="a sample of claims with the lines')
    assert f"1. The key is {SECRET_PLACEHOLDER}\n   [keeper.md:2-2] Her key is {SECRET_PLACEHOLDER}.\n2. Claim" in cited
    assert "\n   [harbour.md:1-2] The harbour was dug in 1811. / It silted up within ten years.\n" in cited
    assert "gone.md" not in cited
    assert SECRET not in opening


def test_the_lines_of_one_claim_are_bounded_and_the_sample_is_always_the_same() -> None:
    documents = {"a.md": CitedDocument(["silt " * 1_000] * 40)}
    text = "\n".join(f"- Claim {number} [a.md:{number}-{number + 8}] [a.md:1-9]." for number in range(1, 31))
    shown = render_cited_claims(text, documents)
    assert shown is not None
    assert shown == render_cited_claims(text, documents)
    assert shown.count("\n   [a.md:") == MAX_CITED_CLAIMS
    assert len(shown) < MAX_CITED_CLAIMS * (MAX_CITED_CHARACTERS + 100) + 200
    assert render_cited_claims("No claim [b.md:1-1].", documents) is None
