"""Submissions are stored with citations in one spelling, and answered with those that do not hold."""

from dataclasses import dataclass, field, replace

import pytest
from inline_snapshot import snapshot

from tests.support.agent_environment import (
    SECRET_PLACEHOLDER,
    TASK,
    TASK_REQUEST,
    AgentEnvironment,
    make_tool_use,
    without_statuses,
)
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.citation_checker import CitationChecker
from waystation.agents.citation_feedback import (
    MAX_LISTED_FAULTS,
    NOT_FINAL,
    SubmissionChecker,
    may_be_mended,
    render_quotation,
)
from waystation.agents.deliverables import Analysis, Deliverable, Finding, ReportDraft, ResearchFindings
from waystation.agents.leg import AgentFinished
from waystation.agents.prompt_sections import extract_question
from waystation.context.transcript import (
    Message,
    Text,
    ToolResult,
    ToolUse,
    Transcript,
    build_rejected_call_result,
    build_user_message,
)
from waystation.documents.citations import CitedDocument, parse_citations
from waystation.documents.documents import SourceDocument
from waystation.documents.web_pages import StoredWebPage
from waystation.kernel.scopes import TaskScope
from waystation.testing.doubles import ScriptedModel, make_scripted_response

DUG, SILTED = "[harbour.md:1-1]", "[harbour.md:2-2]"
WRONG = {"claim": 'It "silted up within ten years".', "citations": ["harbour.md:9"]}


def submit_findings(call_id: str, *citations: str, claim: str = "It silted up.") -> ToolUse:
    return make_tool_use("submit_findings", call_id, findings=[{"claim": claim, "citations": [*citations]}])


async def load_deliverable(env: AgentEnvironment, step_id: str = "research-1") -> Deliverable | None:
    return await env.store.get_deliverable(f"{TASK}/{step_id}", SYSTEM_SCOPE)


async def test_citations_are_stored_in_one_spelling_whatever_was_submitted(env: AgentEnvironment) -> None:
    finding = {"claim": "It was dug (harbour.md, line 1).", "citations": ["harbour.md#L1-L2", "harbour:1, 2"]}
    await env.call_tool(make_tool_use("submit_findings", findings=[finding], open_questions=["Why `harbour.md:2`?"]))
    found = await load_deliverable(env)
    assert isinstance(found, ResearchFindings)
    assert found.findings[0].claim == f"It was dug {DUG}."
    assert found.findings[0].citations == ("[harbour.md:1-2]", DUG, SILTED)
    assert found.open_questions == (f"Why {SILTED}?",)


async def test_an_analysis_and_a_report_are_stored_in_one_spelling_too(env: AgentEnvironment) -> None:
    finding = {"claim": "It silted up.", "citations": ["harbour.md:2"]}
    asked = make_tool_use("submit_analysis", conclusions=[finding], contradictions=["[Harbour.md:1] or not"])
    await env.call_tool(asked, "analysis")
    analysis = await load_deliverable(env, "analysis")
    assert isinstance(analysis, Analysis)
    assert (analysis.conclusions[0].citations, analysis.contradictions) == ((SILTED,), (f"{DUG} or not",))
    await env.call_tool(make_tool_use("write_section", heading="Causes", markdown="Silt [harbour.md:L2]."), "writing")
    await env.call_tool(make_tool_use("submit_report", title="T", summary="Silt (harbour.md:2)."), "writing")
    draft = await load_deliverable(env, "writing")
    assert isinstance(draft, ReportDraft)
    assert (draft.summary, draft.sections[0].markdown) == (f"Silt {SILTED}.", f"Silt {SILTED}.")


async def test_a_section_is_kept_and_answered_with_what_does_not_hold_and_what_would(env: AgentEnvironment) -> None:
    markdown = (
        'They say "dug in 1811" [harbour.md:1]. Then "silted up within ten years" [harbour.md:1]. '
        'Her "key is kept" [keeper.md:2]. It ended [harbour.md:40-52] as [harbor.md:3] and [harbour.md, page 4] say; '
        '"the harbour was DUG" [keeper.md:1].'
    )
    assert await env.call_tool(make_tool_use("write_section", heading="Causes", markdown=markdown), "writing") == (
        snapshot("""\
section 1 kept: Causes
Citations that do not hold (6 of 7):
- [harbour.md:1-1]: the quoted words are not in these lines; these words are in [harbour.md:2-2]
- [keeper.md:2-2]: the quoted words are not in these lines
- [harbour.md:40-52]: the document has 2 lines
- [keeper.md:1-1]: the quoted words are not in these lines; these words are in [harbour.md:1-1]
- [harbor.md:3]: write the lines of one document as [document:first-last]; similar names: harbour.md
- [harbour.md, page 4]: write the lines of one document as [document:first-last]; similar names: harbour.md\
""")
    )
    draft = await load_deliverable(env, "writing")
    assert isinstance(draft, ReportDraft)
    assert [str(one) for one in parse_citations(draft.sections[0].markdown)][:2] == [DUG, DUG]


async def test_quotations_are_compared_with_what_the_agent_has_seen(env: AgentEnvironment) -> None:
    quoted = f'"Her key is {SECRET_PLACEHOLDER}." [keeper.md:2]'
    written = make_tool_use("write_section", heading="Key", markdown=quoted)
    assert await env.call_tool(written, "writing") == "section 1 kept: Key\n1 citation checked: all hold."


async def test_pages_are_found_by_the_markers_of_the_document(bare_env: AgentEnvironment) -> None:
    paper = SourceDocument(name="paper.pdf", text="[page 1]\nIt was dug.\n\n[page 2]\nIt silted up.\nSo it is.\n")
    await bare_env.open_task([paper], asked=TASK_REQUEST)
    await bare_env.call_tool(submit_findings("c1", "paper.pdf, p. 2"))
    found = await load_deliverable(bare_env)
    assert isinstance(found, ResearchFindings)
    assert found.findings[0].citations == ("[paper.pdf:5-6]",)


async def test_a_submission_that_ends_the_run_is_rejected_once_kept_and_then_accepted(env: AgentEnvironment) -> None:
    wrong = make_tool_use("submit_findings", "c1", findings=[WRONG])
    again = make_tool_use("submit_findings", "c2", findings=[WRONG])
    model = ScriptedModel([make_scripted_response(wrong), make_scripted_response(again)])
    assert isinstance(await env.run_leg(model), AgentFinished)
    results = [result for message in await env.load_messages() for result in message.tool_results]
    assert [(result.is_error, result.content) for result in results] == snapshot(
        [
            (
                True,
                """\
Citations that do not hold (1 of 1):
- [harbour.md:9-9]: the document has 2 lines
This submission is kept, but not final yet: correct the faults and submit again. The next submission is accepted as is.\
""",
            ),
            (
                False,
                """\
1 finding submitted
Citations that do not hold (1 of 1):
- [harbour.md:9-9]: the document has 2 lines\
""",
            ),
        ]
    )


async def test_a_section_is_answered_with_the_sentences_that_their_lines_do_not_support(env: AgentEnvironment) -> None:
    markdown = (
        "The harbour was dug in 1811 [harbour.md:1]. It silted up within 12 years [harbour.md:1-2]. "
        "It closed in 1834 [harbour.md:9]."
    )
    assert await env.call_tool(make_tool_use("write_section", heading="Causes", markdown=markdown), "writing") == (
        snapshot("""\
section 1 kept: Causes
Citations that do not hold (1 of 3):
- [harbour.md:9-9]: the document has 2 lines
Sentences that say more than the cited lines (1 of 2). Correct them, cite other lines, or write the numbers \
from which a value is calculated:
- “It silted up within 12 years”: "12 years" is not in lines 1-2 of harbour.md\
""")
    )


async def test_a_claim_is_compared_with_all_lines_that_its_finding_cites(env: AgentEnvironment) -> None:
    quoted = {"quote": "It silted up within ten years.", "citation": "harbour.md:2"}
    claim = "The harbour was dug in 1811 and silted up within ten years."
    finding = {"claim": claim, "citations": ["harbour.md:1"], "quotations": [quoted]}
    done = await env.call_tool(make_tool_use("submit_findings", findings=[finding]))
    assert done == "1 finding submitted\n2 citations checked: all hold."


async def test_findings_with_an_unsupported_claim_are_rejected_once_and_then_accepted(env: AgentEnvironment) -> None:
    claim = "It was dug in 1812."
    model = ScriptedModel([make_scripted_response(submit_findings(one, DUG, claim=claim)) for one in ("c1", "c2")])
    assert isinstance(await env.run_leg(model), AgentFinished)
    results = [result for message in await env.load_messages() for result in message.tool_results]
    missing = '“It was dug in 1812.”: "1812" is not in line 1 of harbour.md'
    assert [(one.is_error, missing in one.content) for one in results] == [(True, True), (False, True)]
    assert isinstance(await load_deliverable(env), ResearchFindings)


def test_the_question_is_read_from_the_first_message() -> None:
    asked = build_user_message("m1", "<task>\n<question>\nWhat did Ada\nbuild?\n</question>\n</task>")
    assert extract_question(Transcript(run_id="r", messages=(asked,))) == "What did Ada\nbuild?"
    assert extract_question(Transcript(run_id="r")) == ""
    assert extract_question(Transcript(run_id="r", messages=(build_user_message("m1", "Find it."),))) == ""


async def test_a_name_of_the_question_need_not_stand_in_the_cited_lines(env: AgentEnvironment) -> None:
    claim = "The harbour of Nordvik silted up within ten years."
    brief = build_user_message("m1", "<task>\n<question>\nWhat of Nordvik?\n</question>\n</task>")
    without = await env.call_tool(submit_findings("c1", SILTED, claim=claim), "research-1")
    assert '"Nordvik" is not in line 2 of harbour.md' in without
    context = await env.make_tool_context("research-1")
    checker = SubmissionChecker(env.publisher.check)
    findings = ResearchFindings(findings=(Finding(claim=claim, citations=(SILTED,)),))
    question = extract_question(Transcript(run_id="r", messages=(brief,)))
    review = await checker.review(findings, findings, context.run.task_ref, None, question)
    assert review.unsupported == ()


async def test_citations_and_sentences_share_the_bound_of_a_result(env: AgentEnvironment) -> None:
    wrong = " ".join(f"It is so [harbour.md:{line}]." for line in range(3, 18))
    unsupported = " ".join(f"It was dug in {year} [harbour.md:1]." for year in range(1812, 1842))
    asked = make_tool_use("write_section", heading="Causes", markdown=f"{wrong} {unsupported}")
    lines = (await env.call_tool(asked, "writing")).splitlines()
    assert sum("the document has" in line for line in lines) == 15
    assert sum('" is not in line' in line for line in lines) == MAX_LISTED_FAULTS - 15
    assert lines[-1] == "- and 25 more"


async def test_a_rejected_submission_is_kept_if_the_agent_is_stopped_then(env: AgentEnvironment) -> None:
    rejected = await env.call_tool(submit_findings("c1", "harbour.md:9"))
    assert rejected.startswith("ERROR Citations that do not hold (1 of 1):")
    found = await load_deliverable(env)
    assert isinstance(found, ResearchFindings)
    assert found.findings[0].citations == ("[harbour.md:9-9]",)


async def test_a_mended_submission_ends_the_run(env: AgentEnvironment) -> None:
    model = ScriptedModel(
        [
            make_scripted_response(submit_findings("c1", "harbour.md:9")),
            make_scripted_response(submit_findings("c2", DUG)),
        ]
    )
    assert isinstance(await env.run_leg(model), AgentFinished)
    assert len(without_statuses((await env.load_transcript()).messages)) == 5
    found = await load_deliverable(env)
    assert isinstance(found, ResearchFindings)
    assert found.findings[0].citations == (DUG,)


async def test_with_little_budget_left_a_submission_with_faults_is_accepted_at_once(env: AgentEnvironment) -> None:
    ctx = await env.make_tool_context()
    toolbox = env.agent_deps.build_role_toolbox("research")
    rejected = await toolbox.run(submit_findings("c1", "harbour.md:9"), ctx)
    assert rejected.is_error
    accepted = await toolbox.run(submit_findings("c1", "harbour.md:9"), replace(ctx, used_share=0.85))
    assert not accepted.is_error
    assert "do not hold" in accepted.content


def _turns(*results: ToolResult) -> Transcript:
    transcript = Transcript(run_id=f"{TASK}/writing").with_message(build_user_message("m1", "Go."))
    for number, result in enumerate(results, 1):
        call = ToolUse(id=result.tool_use_id, name="submit_report", input={})
        said = Message(id=f"a{number}", role="assistant", blocks=(Text(text="So."), call))
        transcript = transcript.with_message(said).with_message(Message(id=f"u{number}", role="user", blocks=(result,)))
    return transcript


def _rejected(call_id: str, content: str) -> ToolResult:
    return build_rejected_call_result(ToolUse(id=call_id, name="submit_report", input={}), content)


@pytest.mark.parametrize(
    ("transcript", "used_share", "mends"),
    [
        (_turns(), 0.0, True),
        (_turns(_rejected("c1", "These arguments cannot be used.")), 0.1, True),
        (_turns(_rejected("c1", f"So.\n{NOT_FINAL}")), 0.1, False),
        (_turns(*(_rejected(f"c{number}", "unreadable") for number in range(3))), 0.1, False),
        (_turns(_rejected("c1", "no"), _rejected("c2", "no")), 0.3, True),
        (_turns(_rejected("c1", "no"), _rejected("c2", "no")), 0.4, False),
        (_turns(), 0.8, False),
    ],
)
def test_faults_are_mended_once_and_while_there_is_budget(
    transcript: Transcript, used_share: float, mends: bool
) -> None:
    assert may_be_mended("submit_report", transcript, used_share) is mends


def test_a_quotation_of_its_own_is_checked_with_its_citation() -> None:
    (citation,) = parse_citations(render_quotation('He said "no\nmore" of it', DUG))
    assert (citation.quotation, str(citation)) == ('He said "no more" of it', DUG)


def test_the_nearest_lines_of_a_quotation_are_found_word_for_word_or_nearly_so() -> None:
    document = CitedDocument(
        ["It silted up.", "", "Then it", "silted up. Twice.", "It <PERSON_7f3a2c91d04e> wrote it down."]
    )
    assert document.find_quotation_lines("silted up.", 4) == (4, 4)
    assert document.find_quotation_lines("silted up.", 1) == (1, 1)
    assert document.find_quotation_lines("Then it silted up.") == (3, 4)
    assert document.find_quotation_lines("then it SILTED up") == (3, 4)
    assert document.find_quotation_lines("It <PERSON_7f3a2c91d04e> wrote it down.") == (5, 5)
    assert document.find_quotation_lines("it was never dug") is None
    assert document.find_quotation_lines("up") is None


@dataclass(frozen=True)
class CountingChecker(CitationChecker):
    """Counts how often it reads the transcripts of all agents."""

    reads: list[TaskScope] = field(default_factory=list[TaskScope])

    async def list_web_pages(self, task: TaskScope) -> dict[str, StoredWebPage]:
        """See base class."""
        self.reads.append(task)
        return await super().list_web_pages(task)


@pytest.mark.parametrize(("cited", "reads"), [("https://example.org/harbour:1-1", 1), ("harbour.md:1", 0)])
async def test_transcripts_are_read_once_for_a_submission_that_cites_a_web_page(
    env: AgentEnvironment, cited: str, reads: int
) -> None:
    plain = env.agent_deps.submission_checker.citation_checker
    checker = CountingChecker(plain.store, plain.redactor, plain.redacted_documents, plain.vault)
    finding = {"claim": "It silted up.", "citations": [f"[{cited}]"]}
    given = ResearchFindings.model_validate({"findings": [finding]})
    review = await SubmissionChecker(checker).review(given, given, env.ref)
    assert (len(checker.reads), review.checked, len(review.faults)) == (reads, 1, reads)
