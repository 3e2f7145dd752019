import hashlib
from dataclasses import replace

import pytest
from inline_snapshot import snapshot

from tests.support.agent_environment import (
    DOCUMENTS,
    NAME,
    NAME_PLACEHOLDER,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    TASK_REQUEST,
    AgentEnvironment,
    make_tool_use,
)
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.agents.redaction import NO_TITLE, TextRedactor
from waystation.documents.citations import FAILED_CITATION_MARK
from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.documents.support_verdicts import SupportVerdict
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import RedactionFailed
from waystation.kernel.usage import Usage
from waystation.reports.cited_sentences import extract_cited_sentences
from waystation.reports.publisher import REDACTED_REMARK, PublishedReport
from waystation.reports.report import OFFLINE_WARNING, CitedSource, extract_answer, render_document_versions
from waystation.tasks.task import BudgetProgress, StepProgress, TaskPhase, TaskProgress

PROGRESS = TaskProgress(
    task_id=TASK,
    phase=TaskPhase.DONE,
    title="Why?",
    model="claude-sonnet-5-5",
    budget=BudgetProgress(limit=Limit(tokens=600_000), spent=Amount(tokens=12_000), reserved=Amount()),
)
DRAFT = ReportDraft(
    title="The harbour",
    summary="Silt closed it [harbour.md:2-2].",
    sections=(
        ReportSection(
            heading="Causes",
            markdown='It says "silted up within ten years" [harbour.md:2-2], "and was dredged" [harbour.md:1-2].\n'
            f'Also "Her key is {SECRET_PLACEHOLDER}." [keeper.md:2-2] and [log.md:1-1], [harbour.md:2-9].',
        ),
    ),
)


async def publish_report(env: AgentEnvironment, progress: TaskProgress = PROGRESS) -> tuple[PublishedReport, str]:
    outcome = await env.publisher.publish(env.ref, progress)
    return outcome, await env.store.get_text(outcome.report, SYSTEM_SCOPE)


async def submit_deliverable(
    env: AgentEnvironment, step_id: str, work: ResearchFindings | Analysis | ReportDraft
) -> None:
    await env.store.commit_deliverable((await env.make_tool_context(step_id)).fence, TASK, work)


async def test_citations_are_checked_against_the_documents_and_those_that_fail_are_listed(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    outcome, report = await publish_report(env)
    assert (outcome.citations, outcome.failed) == (6, 3)
    assert report.split("\n\n## About this report")[0].split("## Failed citations")[1] == snapshot("""\


3 of 6 citations failed the check:

- [harbour.md:1-2]: the quoted words are not in these lines
- [log.md:1-1]: there is no such document
- [harbour.md:2-9]: the document has 2 lines

## Cited sentences

Code compared the figures, dates, names and wording of 5 cited sentences with the cited \
lines: 2 are supported, 2 are not (marked in the text), 1 could not be decided (marked °).
Whether the report answers the question was not judged.\
""")
    assert SECRET not in report


async def test_citations_of_recognised_pages_are_counted(bare_env: AgentEnvironment) -> None:
    scan = "[page 1]\nDug in 1811.\n\n[page 2 (recognised from a picture, confidence 0.93)]\nSilted up in ten years."
    await bare_env.open_task(documents=[SourceDocument(name="scan.pdf", text=scan)])
    said = ReportDraft(title="T", summary="It was dug [scan.pdf:2-2]. It silted up [scan.pdf:5-5].")
    await submit_deliverable(bare_env, "writing", said)
    _, report = await publish_report(bare_env)
    assert "1 citation rests on text recognised from pictures." in report
    assert "page 2 (recognised from a picture, confidence 0.93) (line 5)" in report


async def test_a_report_with_a_citation_of_thousands_of_digits_is_published_and_it_fails(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", ReportDraft(title="T", summary=f"It is so [harbour.md:{'1' * 5_000}-1]."))
    outcome, report = await publish_report(env)
    assert (outcome.citations, outcome.failed) == (1, 1)
    assert "-1]: the document has 2 lines" in report


async def test_how_the_task_ended_is_stored_with_its_report(env: AgentEnvironment) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    outcome, _ = await publish_report(env)
    assert (await env.store.get_task(TASK, SYSTEM_SCOPE)).progress == PROGRESS.replace(
        report=outcome.report,
        reports=(outcome.version,),
        phase=TaskPhase.PARTIAL,
        notes=("The report is partial: 3 of 6 citations failed the check.",),
    )
    assert outcome.version is not None
    assert (outcome.version.phase, outcome.partial_reason) == (
        TaskPhase.PARTIAL,
        "The report is partial: 3 of 6 citations failed the check.",
    )


async def test_a_quotation_is_put_right_as_the_document_has_it_and_its_task_is_done(
    env: AgentEnvironment,
) -> None:
    said = ReportDraft(
        title="T", summary='It says "SILTED up, within 10 years" and "silted-up within TEN years!" [harbour.md:2-2].'
    )
    await submit_deliverable(env, "writing", said)
    outcome, report = await publish_report(env)
    assert 'and "silted up within ten years" [harbour.md:2-2].\n' in report
    assert (outcome.failed, outcome.partial_reason, "**Partial.**" in report, FAILED_CITATION_MARK in report) == (
        0,
        "",
        False,
        False,
    )


async def test_what_does_not_hold_is_marked_where_it_stands_and_the_report_opens_with_how_many(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    _, report = await publish_report(env)
    assert f'"and was dredged" [harbour.md:1-2]{FAILED_CITATION_MARK}.' in report
    assert "> **Partial.** 3 of 6 citations failed the check. Each fault is marked in the text" in report
    assert report.index("**Partial.**") < report.index("**Question.**")
    assert report.count(FAILED_CITATION_MARK) == 3


UNSUPPORTED = ReportDraft(
    title="T",
    summary="The harbour was dug in 1811 [harbour.md:1-1]. It was dug in 1812, they say [harbour.md:1-1].",
)


async def test_a_report_whose_sentences_are_supported_says_what_code_compared(env: AgentEnvironment) -> None:
    draft = ReportDraft(title="T", summary="The harbour was dug in 1811 [harbour.md:1-1].")
    await submit_deliverable(env, "writing", draft)
    outcome, report = await publish_report(env)
    assert outcome.version.phase is TaskPhase.DONE
    assert report.partition("## Cited sentences\n\n")[2].partition("\n\n##")[0] == snapshot("""\
Code compared the figures, dates, names and wording of 1 cited sentence with the cited lines: 1 is supported, 0 are not.
Whether the report answers the question was not judged.\
""")
    (sentence,) = extract_cited_sentences(report)
    assert sentence.replace(verdict=SupportVerdict.SUPPORTED) == sentence


async def test_a_sentence_with_a_figure_that_its_lines_lack_is_marked_and_makes_the_report_partial(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", UNSUPPORTED)
    outcome, report = await publish_report(env)
    reason = "1 of 2 cited sentences states a figure, date or name that the cited lines do not contain"
    assert (outcome.version.phase, outcome.failed) == (TaskPhase.PARTIAL, 0)
    assert outcome.partial_reason == f"The report is partial: {reason}."
    assert f"> **Partial.** {reason}. Each fault is marked in the text and listed below with the reason." in report
    assert "[harbour.md:1-1]. It was dug in 1812, they say [harbour.md:1-1]⁽¹⁾." in report
    assert '\n\n- ⁽¹⁾ "1812" is not in line 1 of harbour.md\n\n## About this report' in report
    assert [(one.verdict, one.missing) for one in extract_cited_sentences(report)] == [
        (SupportVerdict.SUPPORTED, ""),
        (SupportVerdict.NOT_SUPPORTED, '"1812" is not in line 1 of harbour.md'),
    ]


async def test_secrets_are_redacted_in_the_reason_of_a_verdict_as_in_the_report(env: AgentEnvironment) -> None:
    draft = ReportDraft(title="T", summary=f"The harbour was dug by {SECRET} [harbour.md:1-1].")
    await submit_deliverable(env, "writing", draft)
    _, report = await publish_report(env)
    (sentence,) = extract_cited_sentences(report)
    assert (SECRET_PLACEHOLDER in sentence.text, sentence.missing) == (True, REDACTED_REMARK)
    assert "4711" not in report


async def test_publishing_again_gives_the_same_report(env: AgentEnvironment) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    assert await publish_report(env) == await publish_report(env)


async def test_where_the_writer_was_stopped_findings_notes_and_analysis_make_a_partial_report(
    env: AgentEnvironment,
) -> None:
    found = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
    await submit_deliverable(env, "research-1", ResearchFindings(findings=(found,)))
    note = make_tool_use("take_note", text="Dug in 1811.", document="harbour.md", first_line=1, last_line=1)
    await env.call_tool(note, "research-2")
    await submit_deliverable(env, "analysis", Analysis(conclusions=(found,)))
    await submit_deliverable(env, "writing", DRAFT.replace(title="", summary="", sections=()))
    stopped = StepProgress(
        id="writing", role="writing", state="partial", legs=1, usage=Usage(), reason="a person denied it more"
    )
    outcome, report = await publish_report(env, PROGRESS.replace(steps=(stopped,)))
    assert report.split("\n\n## Sources")[0] == snapshot("""\
# Why did it silt up?

> **Partial.** This report was not finished (writing: a person denied it more). The findings follow.

## Findings: The research-1

- It silted up. [harbour.md:2-2]

## Findings: The research-2

- Dug in 1811. [harbour.md:1-1]

## Conclusions

- It silted up. [harbour.md:2-2]\
""")
    assert (outcome.citations, outcome.failed) == (2, 0)


async def test_the_whole_question_stands_in_the_report_redacted_as_its_title_is(
    bare_env: AgentEnvironment,
) -> None:
    asked = f"{'Why did it silt up, and who says so? ' * 10}Ask {NAME}, too."
    await bare_env.open_task(asked=TASK_REQUEST.replace(question=asked))
    await submit_deliverable(bare_env, "writing", DRAFT)
    _, report = await publish_report(bare_env)
    assert f"**Question.** {asked.replace(NAME, NAME_PLACEHOLDER)}\n" in report
    titles = replace(bare_env.publisher, redactor=TextRedactor(bare_env.redactor, titles="none"))
    none = await titles.compose(bare_env.ref, PROGRESS)
    assert f"**Question.** {NO_TITLE}\n" in none.markdown


async def test_a_task_that_could_not_be_planned_has_a_report_too(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(plan=None)
    outcome, report = await publish_report(bare_env, PROGRESS.replace(phase=TaskPhase.FAILED))
    assert "Nothing was found before the work stopped." in report
    assert outcome.citations == 0


async def test_a_report_of_the_offline_model_opens_with_a_warning(bare_env: AgentEnvironment) -> None:
    bare_env.offline = True
    await bare_env.open_task()
    await submit_deliverable(bare_env, "writing", DRAFT)
    _, report = await publish_report(bare_env)
    assert report.startswith(f"{OFFLINE_WARNING}\n\n# The harbour")


async def test_sources_and_what_was_not_used_are_listed_without_private_values(
    bare_env: AgentEnvironment,
) -> None:
    documents = (
        SourceDocument(name="costs.xlsx", text=f"[sheet {SECRET}]\nDredging | 5\n\n[sheet B]\nSilt | 7"),
        SourceDocument(name="harbour.md", text="Dug in 1811."),
    )
    left_out = (SkippedItem(name=f"{SECRET}.doc", reason="an old Word file; save it as .docx"),)
    await bare_env.open_task(documents, asked=TASK_REQUEST.replace(skipped_items=left_out))
    summary = "Dug [harbour.md:1-1], dredged [costs.xlsx:2-2] [costs.xlsx:5-5], closed [harbour.md:1-9]."
    await submit_deliverable(bare_env, "writing", DRAFT.replace(summary=summary, sections=()))
    publisher = replace(bare_env.publisher, redactor=bare_env.redactor)
    report = await bare_env.store.get_text((await publisher.publish(bare_env.ref, PROGRESS)).report, SYSTEM_SCOPE)
    assert report.split("## Sources")[1].split("## Failed citations")[0] == snapshot("""\


- harbour.md: line 1
- costs.xlsx: sheet <SECRET_0123456789ab> (line 2), sheet B (line 5)

""")
    assert report.split("## Not used")[1].split("## Appendix")[0] == snapshot("""\


Files and parts of files that were submitted, but left out:

- <SECRET_0123456789ab>.doc: an old Word file; save it as .docx

""")
    bare_env.redactor.failing = True
    with pytest.raises(RedactionFailed):
        await publisher.publish(bare_env.ref, PROGRESS)


async def test_each_criterion_stands_with_where_it_is_met_as_far_as_citations_hold(
    bare_env: AgentEnvironment,
) -> None:
    accept = ("Names the cause", "Gives depths", "Quotes the keeper", f"Tells of {SECRET}", "Gives a year")
    await bare_env.open_task(asked=TASK_REQUEST.replace(accept=accept))
    sections = (*DRAFT.sections, ReportSection(heading="Year", markdown="In 1811 [harbour.md:1-1]."))
    sections = (*sections, ReportSection(heading="Bare", markdown="So it is."))
    criteria = ("Year", "Causes", "Bare", "The documents are silent on it.")
    await submit_deliverable(bare_env, "writing", DRAFT.replace(sections=sections, criteria=criteria))
    publisher = replace(bare_env.publisher, redactor=bare_env.redactor)
    outcome = await publisher.publish(bare_env.ref, PROGRESS)
    report = await bare_env.store.get_text(outcome.report, SYSTEM_SCOPE)
    assert report.split("## Criteria")[1].split("## Sources")[0] == snapshot("""\


- Names the cause: **met** in “Year” [harbour.md:1-1]
- Gives depths: **not met**, because the section “Causes” has a citation that failed the check
- Quotes the keeper: **not met**, because the section “Bare” has no citation
- Tells of <SECRET_0123456789ab>: **not met**, because the report's writer says: The documents are silent on it.
- Gives a year: **not judged**, because the report's writer named no section for this criterion, and gave no reason

""")
    assert "Names the cause" not in extract_answer(report)


async def test_the_account_says_who_asked_and_which_versions_of_documents_are_cited(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    _, report = await publish_report(env)
    (document, _) = await env.store.list_documents(TASK, SYSTEM_SCOPE)
    assert "- Submitted by tenant local, 2026-11-21 12:00 UTC\n" in report
    appendix = report.partition("## Appendix: document versions\n\n")[2]
    assert appendix.startswith("The cited documents, with the first 16 digits of the SHA-256 of their texts:\n\n")
    assert f"- harbour.md `{document.blob[:16]}`\n- keeper.md" in appendix
    assert document.blob == hashlib.sha256(DOCUMENTS[0].text.encode()).hexdigest()
    many = render_document_versions([CitedSource("harbour.md", "b" * 64, version=2)] * 201)
    assert f"\n- harbour.md `{'b' * 16}` (version 2)\n- harbour.md" in many
    assert many.endswith("\n- and 1 more")
    assert render_document_versions([]) == ""
    renamed = render_document_versions([CitedSource("a(1).md", "b" * 64, file_name="a[1]`x.md", version=2)])
    assert renamed.endswith(f"\n- a(1).md `{'b' * 16}` (version 2) (file a\\[1\\]'x.md)")
