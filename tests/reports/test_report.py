from inline_snapshot import snapshot

from tests.support.progress_values import PAUSED_PROGRESS as STILL_PAUSED
from tests.support.progress_values import PENDING_APPROVAL
from waystation.agents.deliverables import (
    Analysis,
    Finding,
    OutlineSection,
    Quotation,
    ReportDraft,
    ReportSection,
    ResearchFindings,
)
from waystation.budgets.budget import RunUsage
from waystation.documents.citations import Citation, CitedDocument, FailedCitation
from waystation.documents.documents import SkippedItem
from waystation.kernel.usage import Usage
from waystation.reports.report import (
    OFFLINE_WARNING,
    ReportAppendix,
    ReportParts,
    StepFindings,
    count_recognised_citations,
    render_report,
    render_skipped_section,
    render_sources_section,
    render_written_part,
)
from waystation.reports.sections import CHECKED_BY_CODE, NOT_JUDGED, extract_brief_report
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.tasks.view import TaskView

PAUSED = STILL_PAUSED.replace(phase=TaskPhase.PARTIAL)
"""The same task, ended."""
FOUND = StepFindings(
    title="Silting",
    findings=ResearchFindings(
        findings=(
            Finding(claim="It silted up\nwithin ten years.", citations=("[harbour.md:2-2]", "[log.md:4-9]")),
            Finding(claim="Nobody dredged it.", citations=("[harbour.md:3-3]",)),
        )
    ),
)
WEIGHED = Analysis(conclusions=(Finding(claim="Silt closed it.", citations=("[harbour.md:2-3]",)),))
DRAFT = ReportDraft(
    title="The silted harbour",
    summary="Silt closed it [harbour.md:2-3].",
    sections=(ReportSection(heading="Causes", markdown='It "silted up" [harbour.md:2-2].'),),
)


def make_report_parts(
    draft: ReportDraft = DRAFT, progress: TaskProgress = PAUSED, *, offline: bool = False
) -> ReportParts:
    return ReportParts(
        question="Why did the harbour silt up?",
        draft=draft,
        findings=(FOUND,),
        analysis=WEIGHED,
        task=TaskView.from_progress(progress),
        offline=offline,
    )


def test_a_report_names_on_top_some_of_many_agents_that_ended_early_and_none_of_those_that_were_done() -> None:
    research, *others = PAUSED.steps
    early = [research.replace(id=f"research-1.{n}", state="partial", reason="lost") for n in range(1, 7)]
    written = render_written_part(make_report_parts(progress=PAUSED.replace(steps=(*others, *early))))
    assert "> **Steps that ended early:** research-1.1 (lost); " in written
    assert "research-1.4 (lost); and 2 more, listed at the end. From these steps, the report contains" in written
    done = [step.replace(state="done") for step in PAUSED.steps]
    assert "ended early" not in render_written_part(make_report_parts(progress=PAUSED.replace(steps=tuple(done))))


def test_a_draft_counts_a_step_that_was_stopped_early_apart_from_those_that_finished() -> None:
    first, second, *others = [step.replace(state="waiting") for step in STILL_PAUSED.steps]
    steps = (first.replace(state="done"), second.replace(state="partial"), *others)
    written = render_written_part(make_report_parts(ReportDraft(), STILL_PAUSED.replace(steps=steps)))
    assert f", with 1 of {len(steps)} steps finished and 1 stopped early. If it ended now" in written


def test_words_of_others_are_no_markdown_of_the_report() -> None:
    """Why an agent ended can be the words of an endpoint or a hook; a name and a note are what a person typed."""
    link = "[paid](https://evil.example) <img src=x>"
    (partial, *others), (approval, *_) = PAUSED.steps, PAUSED.approvals
    progress = PAUSED.replace(
        steps=(partial.replace(state="partial", reason=link), *others),
        approvals=(approval.replace(by=link, note=link),),
        notes=(link,),
    )
    for draft in (DRAFT, ReportDraft()):
        whole = make_report_parts(draft, progress)
        report = render_report(whole, render_written_part(whole), ReportAppendix(checked=2))
        assert "[paid]" not in report
        assert "<img" not in report
        assert report.count("(paid)(https://evil.example) ‹img src=x›") == 5


def test_a_finished_report_and_how_it_came_about() -> None:
    whole = make_report_parts()
    assert render_report(
        whole, render_written_part(whole), ReportAppendix(checked=2, sources="## Sources", not_used="## Not used")
    ) == snapshot("""\
# The silted harbour

> **Steps that ended early:** research-1 (a person denied it more). From these steps, the report \
contains only what was found before they ended.

**Question.** Why did the harbour silt up?

Silt closed it [harbour.md:2-3].

## Causes

It "silted up" [harbour.md:2-2].

## Sources

## Citations

Checked by code: all citations point to lines that exist (2 places).
Whether the report answers the question was not judged.

## About this report

- Task `task-0123456789abcdef`, model `claude-sonnet-5-5`, 14 model turns in 4 legs
- Tokens: 12,000 input, 3,000 cache write, 90,000 cache read, 4,500 output; cost: $0.123456
- Budget: 41,200 of 200,000 tokens
- Up to 2,500 tokens may have been billed for calls without a reply; this amount counts as spent
- Step research-1 ended early: a person denied it more
- 1 compaction replaced 22,000 tokens, stored 6 passages in memory and redacted 2 private values
- research-1 asked for 20,000 tokens; 15,000 tokens approved by Ada (name not verified): go on
- research-1 asked for 20,000 tokens; denied by Ada (name not verified)
- research-2 asked for 30,000 tokens after 7 calls; no one answered
- Memory did not answer a search; the agent continued without it.

## Not used
""")


def test_where_the_writing_was_not_finished_the_findings_stand_in_for_it() -> None:
    unfinished = DRAFT.replace(title="", summary="")
    assert render_written_part(make_report_parts(unfinished)) == snapshot("""\
# Why did the harbour silt up?

> **Partial.** This report was not finished (research-1: a person denied it more). The findings follow.

## Causes

It "silted up" [harbour.md:2-2].

## Findings: Silting

- It silted up within ten years. [harbour.md:2-2] [log.md:4-9]
- Nobody dredged it. [harbour.md:3-3]

## Conclusions

- Silt closed it. [harbour.md:2-3]\
""")


def test_a_report_that_was_not_finished_has_quotations_and_what_its_outline_lacks() -> None:
    planned = tuple(OutlineSection(heading=heading, covers="All.") for heading in ("causes", "Limits [a](b)"))
    draft = DRAFT.replace(title="", outline=planned, outline_title="Why it silted up")
    said = Finding(
        claim="It silted up.",
        detail="Within ten years.",
        quotations=(
            Quotation(quote="It silted up\nfast.", citation="[log.md:4-4]"),
            Quotation(quote="Within ten years.", citation="[log.md:5-5]"),
        ),
        date="1821",
    )
    found = StepFindings(title="Silting", findings=ResearchFindings(findings=(said,)))
    written = render_written_part(make_report_parts(draft).replace(findings=(found,)))
    assert written.startswith("# Why it silted up\n\n> **Partial.**")
    assert "Planned but not written: Limits (a)(b).\n\n## Findings: Silting\n\n" in written
    assert (
        "- It silted up. Within ten years. (1821) [log.md:4-4] [log.md:5-5]\n"
        '  - "It silted up fast." [log.md:4-4]' in written
    )


def test_a_cancelled_task_says_so_and_a_task_without_anything_says_that() -> None:
    cancelled = PAUSED.replace(phase=TaskPhase.CANCELLED, steps=())
    empty = make_report_parts(ReportDraft(), cancelled).replace(findings=(), analysis=None)
    assert render_written_part(empty) == snapshot("""\
# Why did the harbour silt up?

> **Partial.** This report was not finished (the task was cancelled).

Nothing was found before the work stopped.\
""")


def test_a_report_that_no_llm_wrote_opens_with_that_warning() -> None:
    offline = make_report_parts(offline=True)
    assert render_report(offline, "# Report", ReportAppendix()).startswith(
        f"{OFFLINE_WARNING}\n\n# Report\n\n## About this report"
    )
    assert OFFLINE_WARNING not in render_report(make_report_parts(), "# Report", ReportAppendix())


def test_the_check_of_citations_says_what_it_did_not_judge() -> None:
    report = render_report(make_report_parts(), "# Report", ReportAppendix(checked=1))
    checked = "the citation points to lines that exist."
    assert f"## Citations\n\nChecked by code: {checked}\n{NOT_JUDGED}\n" in report


def test_a_brief_report_ends_with_the_check_of_its_citations() -> None:
    appendix = ReportAppendix(checked=1, sources="## Sources", versions="## Appendix: document versions")
    report = render_report(make_report_parts(), "# Report", appendix)
    assert report.endswith("\n\n## Appendix: document versions\n")
    assert extract_brief_report(report).endswith(f"{NOT_JUDGED}\n")
    assert extract_brief_report("# Written by hand\n") == "# Written by hand\n"


def test_citations_that_do_not_hold_are_listed_with_their_reasons() -> None:
    failed = FailedCitation(
        citation=Citation(document="harbour.md", first_line=2, last_line=9), reason="the document has 5 lines"
    )
    report = render_report(make_report_parts(), "# Report", ReportAppendix(checked=3, failed=(failed,)))
    assert "1 of 3 citations failed the check:\n\n- [harbour.md:2-9]: the document has 5 lines\n" in report
    assert CHECKED_BY_CODE not in report


def test_a_report_says_how_many_citations_rest_on_recognised_text() -> None:
    scan = CitedDocument(
        ["[page 1]", "a", "[page 2 (recognised from a picture, confidence 0.93)]", "b", "[page 3]", "c"]
    )
    documents = {"scan.pdf": scan, "notes.md": CitedDocument(["text"])}
    places = [("scan.pdf", 2, 2), ("scan.pdf", 4, 4), ("scan.pdf", 2, 4), ("scan.pdf", 4, 6), ("notes.md", 1, 1)]
    recognised = count_recognised_citations([cited(*place) for place in places], documents)
    assert recognised == 3
    whole = render_report(make_report_parts(), "# Report", ReportAppendix(checked=5, recognised=recognised))
    assert f"(5 places). 3 citations rest on text recognised from pictures.\n{NOT_JUDGED}\n" in whole
    failed = FailedCitation(citation=cited("notes.md", 2, 9), reason="the document has 1 line")
    partial = render_report(make_report_parts(), "# Report", ReportAppendix(checked=3, failed=(failed,), recognised=1))
    assert (
        "\n\n1 citation rests on text recognised from pictures, and 1 of 3 citations failed the check:\n\n- [notes"
        in partial
    )


def test_an_unknown_cost_and_an_unanswered_request_are_said() -> None:
    totals = RunUsage(cost_micro_usd=None, usage=Usage(searches=3, estimated=4_000))
    progress = PAUSED.replace(totals=totals, approvals=(PENDING_APPROVAL,))
    report = render_report(make_report_parts(progress=progress), "# Report", ReportAppendix())
    assert "- Web searches by the provider: 3\n" in report
    assert (
        "- The endpoint did not report all usage. The missing part counts as 4,000 tokens, which is an upper bound\n"
        in report
    )
    assert "cost: price unknown" in report
    assert "- research-2 asked for 30,000 tokens after 7 calls; no one answered" in report
    assert "may have been billed" not in report


def cited(document: str, first_line: int, last_line: int) -> Citation:
    return Citation(document=document, first_line=first_line, last_line=last_line)


def test_each_source_is_named_once_with_its_places_in_order() -> None:
    documents = {
        "notes.md": CitedDocument(["text"] * 9),
        "paper.pdf": CitedDocument(["[page 1]", "a", "b", "[page 2]", "c", "[page 3]", "d", "e"]),
        "mail.eml": CitedDocument(["Subject: x", "text", "[sheet Costs of attachment a.xlsx]", "1 | 2"]),
    }
    holding = [
        cited("paper.pdf", 7, 8),
        cited("notes.md", 4, 5),
        cited("paper.pdf", 2, 2),
        cited("mail.eml", 4, 4),
        cited("notes.md", 2, 2),
        cited("paper.pdf", 3, 5),
        cited("paper.pdf", 7, 8).replace(quotation="another quotation"),
        cited("paper.pdf", 3, 3),
        cited("mail.eml", 1, 3),
    ]
    assert render_sources_section(holding, documents) == snapshot("""\
## Sources

- paper.pdf: page 1 (lines 2, 3), page 1 to page 2 (lines 3–5), page 3 (lines 7–8)
- notes.md: lines 2, 4–5
- mail.eml: beginning to sheet Costs of attachment a.xlsx (lines 1–3), sheet Costs of attachment a.xlsx (line 4)\
""")
    assert render_sources_section([], documents) == ""


def test_what_was_not_used_is_listed_with_its_reasons_up_to_fifty() -> None:
    left_out = [SkippedItem(name=f"{number}.doc", reason="an old\nWord file") for number in range(1_051)]
    lines = render_skipped_section(left_out).splitlines()
    assert lines[:5] == [
        "## Not used",
        "",
        "Files and parts of files that were submitted, but left out:",
        "",
        "- 0.doc: an old Word file",
    ]
    assert lines[-2:] == ["- 49.doc: an old Word file", "- and 1,001 more"]
    assert render_skipped_section([]) == ""
