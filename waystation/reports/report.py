"""Builds the Markdown of a report: what the agents wrote, warnings, sources, and an account of how it came about.

Also finds faults of a draft by code alone. That compares words, not meaning: it misses much, and reports only what is
certain enough to bother a writer with.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Literal, NamedTuple

from pydantic import Field

from waystation.agents.delegation import get_parent_id
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ResearchFindings
from waystation.agents.person_questions import PersonQuestion
from waystation.documents.citations import (
    CITATION_PATTERN,
    UNDECIDED_SENTENCE_MARK,
    Citation,
    CitedDocument,
    FailedCitation,
    parse_citations,
    render_unsupported_sentence_mark,
)
from waystation.documents.descriptions import DocumentDescription
from waystation.documents.documents import SkippedItem, is_recognised_place
from waystation.documents.headings import ARABIC_VOWEL_SIGNS
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import format_amount, format_used_amount
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.memory.passage_builder import UnindexedDocuments
from waystation.planning.plan import PlanRevision, ReportReview, SentenceJudgement
from waystation.reports.sections import (
    ACCOUNT,
    CHECKED_BY_CODE,
    CITATIONS,
    CITED_SENTENCES,
    COMPARED_BY_CODE,
    CRITERIA,
    DATED,
    DIGEST_DIGITS,
    DOCUMENT_VERSIONS,
    FAILED_CITATIONS,
    FILE,
    NOT_IN_MEMORY,
    NOT_JUDGED,
    NOT_USED,
    QUESTIONS,
    RETRIEVED,
    SOURCES,
)
from waystation.security.untrusted import neutralize_markdown, sanitize_line
from waystation.tasks.details import format_privacy, format_request_and_answer, format_task_cost, format_work_totals
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import StepView, TaskView

OFFLINE_WARNING = (
    "> **No LLM wrote this.** The built-in offline model searched the documents, copied the best passages word for "
    "word and put them in order. It understands nothing; read this report as an index, not as an answer."
)

QUESTION_LABEL = "**Question.**"
"""Beginning of the paragraph with the question."""
_APPARATUS = tuple(
    f"{head}\n" for head in (QUESTIONS, CRITERIA, SOURCES, CITATIONS, FAILED_CITATIONS, CITED_SENTENCES, ACCOUNT)
)
"""Headings of the sections that code adds after what agents wrote."""

MAX_NAMED_AGENTS = 4
"""Maximum number of agents named at the top; the account lists all of them."""
MAX_TITLE_CHARACTERS = 300
"""Maximum length of a title in characters."""
MAX_SKIPPED_LINES = 50
"""Maximum lines in the list of what was not used."""
MAX_LISTED_DOCUMENTS = 200
"""Maximum documents that the account names, and the hexadecimal digits shown of each hash."""


class StepFindings(Value):
    """What one research step submitted, or had noted when it was stopped."""

    title: str
    findings: ResearchFindings


class ReportParts(Value):
    """Everything that a report is built from."""

    question: str
    draft: ReportDraft
    findings: tuple[StepFindings, ...]
    analysis: Analysis | None
    task: TaskView
    offline: bool
    skipped_items: tuple[SkippedItem, ...] = ()
    procedures: tuple[ProcedureSource, ...] = ()
    """Procedures that agents were told to follow."""
    senders: tuple[str, ...] = ()
    """For each message that a person sent to its agents, the name that the person gave."""

    @property
    def is_empty(self) -> bool:
        """Whether no agent has noted, found or written anything."""
        found = any(step.findings.findings for step in self.findings)
        return not found and self.analysis is None and self.draft.is_empty


class SentenceCounts(Value):
    """How many sentences with citations the cited lines support."""

    supported: int = 0
    unsupported: int = 0
    undecided: int = 0
    with_absent_details: int = 0
    """Of the unsupported ones: those that state a figure, date or name that the cited lines do not contain."""
    judged: int = 0
    """Of all: those that a model decided, because code could not."""

    @property
    def total(self) -> int:
        """Number of sentences that were checked."""
        return self.supported + self.unsupported + self.undecided


class ReportAppendix(Value):
    """What code adds to what the agents wrote: the check of their citations, and parts in Markdown."""

    questions: str = ""
    """The section with the questions that agents asked and no one answered."""
    checked: int = 0
    """Number of citations that were checked."""
    failed: tuple[FailedCitation, ...] = ()
    quotations: int = 0
    """Number of quotations among the checked citations."""
    sentences: SentenceCounts = SentenceCounts()
    remarks: str = ""
    """Lines of a list: what the lines of unsupported sentences lack."""
    recognised: int = 0
    """Number of citations of text that was recognised in pictures."""
    criteria: str = ""
    """Lines with the criteria, and where each is met."""
    sources: str = ""
    not_used: str = ""
    oversight: str = ""
    """Lines of the account: revisions, reviews, and faults that were not fixed."""
    procedures: str = ""
    """Lines of the account: procedures that agents were told to follow."""
    requests: str = ""
    """Line of the account: who asked and when."""
    versions: str = ""
    """The appendix: which versions of which documents are cited."""
    answers: tuple[str, ...] = ()
    """Lines of the account: which models answered in place of the requested one."""


def insert_after_title(report: str, part: str) -> str:
    """Insert a part after the report's title and warnings.

    It must begin like a warning, so that it is no part of the answer.
    """
    above, mark, rest = f"\n\n{report}".partition("\n\n# ")
    head, *blocks = rest.split("\n\n")
    place = sum(1 for _ in takewhile(lambda block: block.startswith("> **"), blocks))
    return f"{above}{mark}{head}\n\n".removeprefix("\n\n") + "\n\n".join([*blocks[:place], part, *blocks[place:]])


def render_written_part(parts: ReportParts) -> str:
    """Render what the agents wrote; if the writing was not finished, the findings instead."""
    draft = parts.draft
    whole, findings = bool(draft.title), _render_findings(parts)
    lines = [f"# {draft.title or draft.outline_title or _title(parts) or 'Report'}"]
    if not parts.task.phase.over:
        lines.append(_why_draft(parts.task))
    elif not whole:
        lines.append(f"> **Partial.** {_why_partial(parts.task, has_findings=bool(findings))}")
    elif early := [
        f"{step.id} ({neutralize_markdown(step.reason)})" for step in parts.task.steps if step.state == "partial"
    ]:
        lines.append(
            f"> **Steps that ended early:** {_some(early)}. From these steps, the report "
            "contains only what was found before they ended."
        )
    said = lines[0] == f"# {' '.join(parts.question.split())}"
    lines += ["" if said else f"{QUESTION_LABEL} {parts.question}", draft.summary]
    lines += [f"## {section.heading}\n\n{section.markdown}" for section in draft.sections]
    if not whole:
        if draft.missing_sections:
            missing = "; ".join(neutralize_markdown(planned.heading) for planned in draft.missing_sections)
            lines.append(f"Planned but not written: {missing}.")
        lines += findings or ["Nothing was found before the work stopped."]
    return "\n\n".join(filter(None, lines))


def render_report(parts: ReportParts, written: str, apparatus: ReportAppendix) -> str:
    """Render the report to be stored: warning, written part, sources and their check, account, skipped items."""
    why = describe_faulty_citations(len(apparatus.failed), apparatus.checked, apparatus.sentences)
    if why and parts.draft.title and parts.task.phase.over:
        written = insert_after_title(
            written, f"> **Partial.** {why}. Each fault is marked in the text and listed below with the reason."
        )
    pieces = [
        OFFLINE_WARNING if parts.offline else "",
        written,
        apparatus.questions,
        f"{CRITERIA}\n\n{apparatus.criteria}" if apparatus.criteria else "",
        apparatus.sources,
        _citations_section(apparatus),
        _cited_sentences_section(apparatus),
        _account(parts, apparatus),
        apparatus.not_used,
        apparatus.versions,
    ]
    return "\n\n".join(filter(None, pieces)) + "\n"


def describe_faulty_citations(failed: int, checked: int, sentences: SentenceCounts) -> str:
    """Describe why a report is not done: citations that failed the check, and cited sentences that state a figure, date
    or name that their lines do not contain. Empty if there are none.
    """
    absent = sentences.with_absent_details
    states = "states" if absent == 1 else "state"
    faulty = [
        _describe_failed_citations(failed, checked),
        f"{absent} of {format_count(sentences.total, 'cited sentence')} {states} a figure, date or name that the "
        "cited lines do not contain"
        if absent
        else "",
    ]
    return ", and ".join(filter(None, faulty))


def _describe_failed_citations(failed: int, checked: int) -> str:
    return f"{failed} of {format_count(checked, 'citation')} failed the check" if failed else ""


def count_recognised_citations(citations: Sequence[Citation], documents: Mapping[str, CitedDocument]) -> int:
    """Return how many citations name lines that begin or end in text that was recognised in a picture."""
    places = (
        {documents[one.document].find_place(line) or "" for line in (one.first_line, one.last_line)}
        for one in citations
    )
    return sum(any(map(is_recognised_place, found)) for found in places)


def describe_recognised_citations(count: int) -> str:
    """Describe how many citations rest on recognised text; empty if none does."""
    return (
        f"{format_count(count, 'citation')} {'rests' if count == 1 else 'rest'} on text recognised from pictures"
        if count
        else ""
    )


def extract_answer(report: str) -> str:
    """Extract what agents wrote from a whole report, without warnings, question, and what code added after it."""
    end = min((place for head in _APPARATUS if (place := report.find(f"\n\n{head}")) >= 0), default=len(report))
    blocks = report[:end].split("\n\n")
    return "\n\n".join(block for block in blocks if not block.startswith(("> **", QUESTION_LABEL))).strip() + "\n"


def render_questions_section(questions: Sequence[PersonQuestion]) -> str:
    """Render the questions that agents asked, with who asked; empty if there are none."""
    if not questions:
        return ""
    head = (
        "No one answers questions while agents work, so the agents continued with assumptions. You can answer the "
        "questions in a follow-up task."
    )
    lines = [f"- {', '.join(one.agents)}: {neutralize_markdown(one.text)}" for one in questions]
    return "\n".join([QUESTIONS, "", head, "", *lines])


def render_sources_section(holding: Sequence[Citation], documents: Mapping[str, CitedDocument]) -> str:
    """Render each cited document once, in the order of first citation, with cited places and lines; empty
    without any.
    """
    cited: dict[str, set[tuple[int, int]]] = {}
    for citation in holding:
        cited.setdefault(citation.document, set()).add((citation.first_line, citation.last_line))
    lines = [f"- {name}: {_cited(documents[name], sorted(ranges))}" for name, ranges in cited.items()]
    return "\n".join([SOURCES, "", *lines]) if lines else ""


def render_skipped_section(left_out: Sequence[SkippedItem]) -> str:
    """Render the submitted items that are in no document, the first 50 by name with reasons; empty without any."""
    if not left_out:
        return ""
    lines = [" ".join(f"- {item.name}: {item.reason}".split()) for item in left_out[:MAX_SKIPPED_LINES]]
    if len(left_out) > MAX_SKIPPED_LINES:
        lines.append(f"- and {len(left_out) - MAX_SKIPPED_LINES:,} more")
    return "\n".join([NOT_USED, "", "Files and parts of files that were submitted, but left out:", "", *lines])


def render_unindexed_section(left_out: UnindexedDocuments | None) -> str:
    """Render which documents memory does not contain completely, the first 50 by name; empty if there are none."""
    if left_out is None:
        return ""
    lines = [*left_out.lines[:MAX_SKIPPED_LINES]]
    if len(left_out.lines) > MAX_SKIPPED_LINES:
        lines.append(f"- and {len(left_out.lines) - MAX_SKIPPED_LINES:,} more")
    said = (
        f"The agents of this task could read all documents. Memory keeps {left_out.max_characters:,} of the documents' "
        f"{left_out.total_characters:,} characters for later tasks (limit: WAYSTATION_REMEMBERED_CHARACTERS). "
        "Memory lacks:"
    )
    return "\n".join([NOT_IN_MEMORY, "", said, "", *lines])


def render_procedure_lines(names: Sequence[str], digests: Sequence[str]) -> str:
    """Render the procedures that agents were told to follow, by name and SHA-256 of the text; empty without any."""
    return "\n".join(
        f"- Procedure followed: {sanitize_line(name)}, SHA-256 `{digest}`"
        for name, digest in zip(names, digests, strict=True)
    )


class CitedSource(NamedTuple):
    """A cited document or web page, as the appendix names it."""

    name: str
    """Name of the document, or address of the page."""
    blob: str
    """Content hash of its text."""
    description: DocumentDescription = DocumentDescription()
    file_name: str = ""
    """Path of its file as given, if the name differs; otherwise empty."""
    version: int = 1
    """Version that is cited, if the document changed while the task ran."""
    retrieved: datetime | None = None
    """When a web page was fetched."""


def render_document_versions(sources: Sequence[CitedSource]) -> str:
    """Render the appendix with the cited documents and pages: the start of the SHA-256 of their texts, title and date;
    empty without any.
    """
    lines = [_describe_source(one) for one in sources[:MAX_LISTED_DOCUMENTS]]
    if len(sources) > MAX_LISTED_DOCUMENTS:
        lines.append(f"- and {len(sources) - MAX_LISTED_DOCUMENTS:,} more")
    said = f"The cited documents, with the first {DIGEST_DIGITS} digits of the SHA-256 of their texts:"
    return "\n".join([DOCUMENT_VERSIONS, "", said, "", *lines]) if lines else ""


def _describe_source(one: CitedSource) -> str:
    title = sanitize_line(neutralize_markdown(one.description.title)).replace("`", "'")
    parts = [f"- {one.name} `{one.blob[:DIGEST_DIGITS]}`"]
    if one.version > 1:
        parts.append(f" (version {one.version})")
    if one.file_name:
        parts.append(f" ({FILE} {_escape_file_name(one.file_name)})")
    if title:
        parts.append(f": {title}")
    if one.description.date:
        parts.append(f" ({DATED} {one.description.date})")
    if one.retrieved is not None:
        parts.append(f" ({RETRIEVED} {one.retrieved.astimezone(UTC):%Y-%m-%d})")
    return "".join(parts)


def _escape_file_name(name: str) -> str:
    """Return the name with its brackets, which `neutralize_markdown` would replace: the document's name lacks them."""
    parts = (map(neutralize_markdown, part.split("]")) for part in sanitize_line(name).replace("`", "'").split("["))
    return r"\[".join(r"\]".join(part) for part in parts)


def _cited(document: CitedDocument, ranges: Sequence[tuple[int, int]]) -> str:
    by_place: dict[str, list[tuple[int, int]]] = {}
    for first, last in ranges:
        begin, end = document.find_place(first), document.find_place(last)
        place = begin or "" if begin == end else f"{begin or 'beginning'} to {end}"
        by_place.setdefault(place, []).append((first, last))
    return ", ".join(f"{place} ({_numbers(own)})" if place else _numbers(own) for place, own in by_place.items())


def _numbers(ranges: Sequence[tuple[int, int]]) -> str:
    one = len(ranges) == 1 and ranges[0][0] == ranges[0][1]
    numbers = ", ".join(f"{first}" if first == last else f"{first}–{last}" for first, last in ranges)
    return f"line {numbers}" if one else f"lines {numbers}"


def _title(parts: ReportParts) -> str:
    """Return the whole question if it is short enough for a heading, rather than its beginning."""
    question = " ".join(parts.question.split())
    return question if 0 < len(question) <= MAX_TITLE_CHARACTERS else parts.task.title


def _why_partial(task: TaskView, *, has_findings: bool) -> str:
    reasons = [f"{step.id}: {neutralize_markdown(step.reason)}" for step in _list_plan_steps(task) if step.reason]
    if task.phase is TaskPhase.CANCELLED:
        reasons.insert(0, "the task was cancelled")
    why = "; ".join(reasons) or "the writing step did not run"
    return f"This report was not finished ({why}).{' The findings follow.' if has_findings else ''}"


def _some(agents: Sequence[str]) -> str:
    more = len(agents) - MAX_NAMED_AGENTS
    return "; ".join([*agents[:MAX_NAMED_AGENTS], *([f"and {more} more, listed at the end"] if more > 0 else [])])


def _list_plan_steps(task: TaskView) -> list[StepView]:
    return [step for step in task.steps if get_parent_id(step.id) is None]


def _why_draft(task: TaskView) -> str:
    stands = "not finished"
    if steps := _list_plan_steps(task):
        finished, stopped = (sum(step.state == state for step in steps) for state in ("done", "partial"))
        stands = f"{task.phase}, with {finished} of {format_count(len(steps), 'step')} finished"
        stands += f" and {stopped} stopped early" if stopped else ""
    return f"> **Draft.** The task is {stands}. If it ended now, it would deliver this report."


def _render_findings(parts: ReportParts) -> list[str]:
    blocks = [
        f"## Findings: {step.title}\n\n" + "\n".join(map(_bullet, step.findings.findings))
        for step in parts.findings
        if step.findings.findings
    ]
    if parts.analysis is not None and parts.analysis.conclusions:
        blocks.append("## Conclusions\n\n" + "\n".join(map(_bullet, parts.analysis.conclusions)))
    return blocks


def _bullet(finding: Finding) -> str:
    """Render a finding as an item of a list: claim and detail, then the quotations that they do not have."""
    said = " ".join(f"{finding.claim} {finding.detail}".split())
    quoted = ((" ".join(one.quote.split()).strip('"'), one.citation) for one in finding.quotations)
    lines = [f'  - "{quote}" {citation}' for quote, citation in quoted if quote not in said]
    dated = f" ({' '.join(finding.date.split())})" if finding.date.strip() else ""
    return "\n".join([f"- {' '.join([f'{said}{dated}', *finding.all_citations])}", *lines])


def _citations_section(apparatus: ReportAppendix) -> str:
    checked, failed = apparatus.checked, apparatus.failed
    recognised = describe_recognised_citations(apparatus.recognised)
    if not failed:
        # A place may be cited several times, so the number would not be that of the citations that a reader counts.
        lines = "to lines that exist"
        each = f"the citation points {lines}" if checked == 1 else f"all citations point {lines} ({checked} places)"
        said = f"{CHECKED_BY_CODE} {each}{_describe_quotations(apparatus.quotations)}."
        said += f" {recognised}." if recognised else ""
        judged = "" if apparatus.sentences.total else f"\n{NOT_JUDGED}"
        return f"{CITATIONS}\n\n{said}{judged}" if checked else ""
    lines = [f"- {item.citation}: {item.reason}" for item in failed]
    found = ", and ".join(filter(None, [recognised, _describe_failed_citations(len(failed), checked)]))
    head = f"{FAILED_CITATIONS}\n\n{found}:"
    return "\n".join([head, "", *lines])


def _describe_quotations(count: int) -> str:
    match count:
        case 0:
            return ""
        case 1:
            return ", and the one quotation matches the cited lines word for word"
        case _:
            return f", and all {count:,} quotations match the cited lines word for word"


def _count_with_verb(count: int) -> str:
    """Format a count as a subject with its verb: `1 is`, `2 are`."""
    return f"{count:,} {'is' if count == 1 else 'are'}"


def _cited_sentences_section(apparatus: ReportAppendix) -> str:
    counts = apparatus.sentences
    if not counts.total:
        return ""
    marked = " (marked in the text)" if counts.unsupported else ""
    found = [f"{_count_with_verb(counts.supported)} supported", f"{_count_with_verb(counts.unsupported)} not{marked}"]
    if counts.undecided:
        found.append(f"{counts.undecided:,} could not be decided (marked {UNDECIDED_SENTENCE_MARK})")
    compared = f"{COMPARED_BY_CODE}{format_count(counts.total, 'cited sentence')} with the cited lines"
    if counts.judged:
        compared += f", and a model decided {counts.judged:,} that code could not decide. Result of both"
    said = f"{compared}: {', '.join(found)}.\n{NOT_JUDGED}"
    return "\n\n".join(filter(None, [CITED_SENTENCES, said, apparatus.remarks]))


def render_sentence_remarks(remarks: Sequence[str]) -> str:
    """Render what the lines of unsupported sentences lack, as a list with the numbers of their marks."""
    return "\n".join(
        f"- {render_unsupported_sentence_mark(number)} {neutralize_markdown(remark)}"
        for number, remark in enumerate(remarks, 1)
    )


def _account(parts: ReportParts, apparatus: ReportAppendix) -> str:
    task, usage = parts.task, parts.task.usage
    lines = [
        ACCOUNT,
        "",
        f"- Task `{task.task_id}`, model `{task.model}`, {task.turns} model turns"
        + (f" in {format_work_totals(task)[0]}" if task.legs else ""),
        f"- Tokens: {usage.input:,} input, {usage.cache_write:,} cache write, {usage.cache_read:,} cache read, "
        f"{usage.output:,} output; cost: {format_task_cost(task)}",
        f"- Budget: {format_used_amount(task.budget.spent, task.budget.limit)}",
    ]
    lines += filter(None, [apparatus.requests])
    if usage.searches:
        lines.append(f"- Web searches by the provider: {usage.searches:,}")
    if usage.estimated:
        lines.append(
            "- The endpoint did not report all usage. The missing part counts as "
            f"{format_count(usage.estimated, 'token')}, which is an upper bound"
        )
    lines += [f"- {answer}" for answer in apparatus.answers]
    if privacy := format_privacy(task):
        lines.append(f"- {privacy}")
    if not task.possibly_billed.is_zero:
        held = format_amount(task.possibly_billed)
        lines.append(f"- Up to {held} may have been billed for calls without a reply; this amount counts as spent")
    lines += [
        f"- {'Subagent' if get_parent_id(step.id) else 'Step'} {step.id} ended early: "
        f"{neutralize_markdown(step.reason)}"
        for step in task.steps
        if step.state == "partial"
    ]
    lines += [*filter(None, [apparatus.procedures, apparatus.oversight]), *_compactions(task)]
    over = task.phase.over
    lines += [f"- {neutralize_markdown(format_request_and_answer(approval, over=over))}" for approval in task.approvals]
    lines += [
        f"- {neutralize_markdown(sanitize_line(by)) or 'Someone'} sent the agents a message while the task ran"
        for by in parts.senders
    ]
    updates = (update for update in task.document_updates if update.stored)
    lines += [f"- The documents were updated while the task ran: {update.text}" for update in updates]
    lines += [f"- {neutralize_markdown(note)}" for note in task.notes]
    return "\n".join(lines)


def _compactions(task: TaskView) -> list[str]:
    made = task.sum_compactions()
    if not made.effective_count:
        return []
    return [
        f"- {format_count(made.effective_count, 'compaction')} replaced {format_count(made.hidden_tokens, 'token')}, "
        f"stored {format_count(made.passages, 'passage')} in memory and redacted "
        f"{format_count(made.redactions, 'private value')}"
    ]


FaultKind = Literal["citation", "uncited", "uncovered", "contradiction", "unsupported", "form"]
"""citation: it failed the check, which only code says; uncited: a claim has no citation; uncovered: something asked for
is not answered; contradiction: documents disagree and the report does not say so; unsupported: what is cited does
not say what the report says, or says less; form: it is not what was asked for.
"""
MAX_FAULT_CHARACTERS = 400
"""Maximum characters of one fault."""
MAX_UNCITED_WORDS = 40
"""A section with more words than this and no citation makes uncited claims."""
WORD = compile_bounded(r"[^\W\d_]{4,}")
_SAY_NOTHING = """
about after also answer before between does document documents each every find from give have into list many most much
name only other over said same says should show some such than that their them then there these they this those until
very were what when where which while will with would
"""
STOP_WORDS = frozenset(_SAY_NOTHING.split())
"""Words of four letters and more that say nothing about the topic."""
_UNSPACED = compile_bounded(
    r"[\u0e00-\u0eff\u1780-\u17ff\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]{2,}+"
)
"""Writing whose words have no spaces between them, or whose words are not compared by their beginnings."""
_ARTICLE = compile_bounded(r"\A[وفبكل]?(?:ال|لل)(?=\w{3})")
"""The Arabic article, with the words that are written together with it."""
MIN_SCRIPT_PART = 4
"""A script is one of a text's if one in this many of the text's stems is in it."""
STEM_CHARACTERS = 5
"""Words are compared by this many letters: `harbour` is mentioned if `harbours` is."""


class ReportFault(Value):
    """One thing that is wrong with a report."""

    kind: FaultKind
    text: str = Field(min_length=1, max_length=MAX_FAULT_CHARACTERS)


class FaultList(Value):
    """Faults that a review found, as stored."""

    faults: tuple[ReportFault, ...] = ()


class DraftUnderReview(Value):
    """A draft with everything that it is compared with."""

    draft: ReportDraft
    requirements: tuple[str, ...]
    """The questions of the plan, and the person's criteria."""
    findings: tuple[ResearchFindings, ...]
    analysis: Analysis | None
    failed: tuple[FailedCitation, ...] = ()
    """Citations that failed the check."""
    unsupported: tuple[str, ...] = ()
    """What the lines of cited sentences lack: a figure, a date or a name."""

    @property
    def text(self) -> str:
        """The whole text of the draft."""
        sections = [f"## {section.heading}\n\n{section.markdown}" for section in self.draft.sections]
        return "\n\n".join([f"# {self.draft.title}", self.draft.summary, *sections])

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """All findings of the research."""
        return tuple(finding for step in self.findings for finding in step.findings)

    @property
    def uncited_finding_count(self) -> int:
        """Number of findings of which the draft cites no place."""
        cited = {_lines(text) for text in map(str, parse_citations(self.text))}
        return sum(not any(_lines(place) in cited for place in finding.all_citations) for finding in self.all_findings)


def find_faults(drafted: DraftUnderReview) -> tuple[ReportFault, ...]:
    """Return all faults that words and places show."""
    return tuple([*_citation_faults(drafted), *_uncovered(drafted), *_contradictions(drafted)])


def _citation_faults(drafted: DraftUnderReview) -> Iterator[ReportFault]:
    for failed in drafted.failed:
        yield ReportFault(
            kind="citation", text=f"{_short(str(failed.citation))}: {failed.reason}"[:MAX_FAULT_CHARACTERS]
        )
    for missing in drafted.unsupported:
        yield ReportFault(kind="unsupported", text=_short(missing))
    for section in drafted.draft.sections:
        if _count_words(section.markdown) > MAX_UNCITED_WORDS and not CITATION_PATTERN.search(section.markdown):
            yield ReportFault(kind="uncited", text=f"The section {_short(repr(section.heading))} has no citation.")
    if drafted.all_findings and drafted.uncited_finding_count == len(drafted.all_findings):
        count = len(drafted.all_findings)
        said = "The only finding is not cited." if count == 1 else f"None of the {count} findings is cited."
        yield ReportFault(kind="unsupported", text=said)


def _uncovered(drafted: DraftUnderReview) -> Iterator[ReportFault]:
    said = _stems(drafted.text)
    for asked in dict.fromkeys(drafted.requirements):
        # A question in another script than the report's is answered in other words: nothing can be said of it.
        if (wanted := _in_scripts_of(said, _stems(asked))) and not wanted & said:
            yield ReportFault(kind="uncovered", text=f"The report does not mention this: {_short(asked)}")


def _contradictions(drafted: DraftUnderReview) -> Iterator[ReportFault]:
    said = _stems(drafted.text)
    for told in drafted.analysis.contradictions if drafted.analysis else ():
        words = _in_scripts_of(said, _stems(CITATION_PATTERN.sub(" ", told)))
        if 2 * len(words & said) < len(words):
            yield ReportFault(
                kind="contradiction", text=f"The analysis found this, but the report does not say it: {_short(told)}"
            )


def _lines(place: str) -> str:
    return " ".join(place.split()).strip("[]").casefold()


def _count_words(text: str) -> int:
    """Return the number of words. Writing without spaces has about one for every two characters."""
    unspaced = sum(map(len, _UNSPACED.findall(text)))
    return len(_UNSPACED.sub(" ", text).split()) + unspaced // 2


def _stems(text: str) -> frozenset[str]:
    """Return the beginnings of the words; of writing without spaces, all pairs of characters."""
    folded = unicodedata.normalize("NFKC", text).casefold().translate(ARABIC_VOWEL_SIGNS)
    runs = _UNSPACED.findall(folded)
    pairs = {run[place : place + 2] for run in runs for place in range(len(run) - 1)}
    words = (_ARTICLE.sub("", word) for word in WORD.findall(_UNSPACED.sub(" ", folded)))
    return frozenset(pairs | {word[:STEM_CHARACTERS] for word in words if word not in STOP_WORDS})


def _in_scripts_of(said: frozenset[str], stems: frozenset[str]) -> frozenset[str]:
    """Return the stems in scripts that make up a good part of a text."""
    often = Counter(map(_get_script, said))
    return frozenset(stem for stem in stems if often[_get_script(stem)] * MIN_SCRIPT_PART >= len(said))


def _get_script(stem: str) -> str:
    """Return the script of its first letter, as the letter's Unicode name begins: `LATIN`, `CYRILLIC`, `CJK`."""
    name = unicodedata.name(stem[0], "").partition(" ")[0]
    return "CJK" if name in {"HIRAGANA", "KATAKANA", "HANGUL"} else name


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:298]} …"


def render_fault_list(faults: Sequence[ReportFault]) -> str:
    """Render the faults, one on each line."""
    return "\n".join(f"- {fault.kind}: {' '.join(fault.text.split())}" for fault in faults)


def render_oversight_lines(
    revisions: Sequence[PlanRevision],
    reasons: Mapping[int, str],
    reviews: Sequence[ReportReview | SentenceJudgement],
    faults: FaultList,
) -> str:
    """Render lines of a Markdown list; empty if nothing was reviewed. `reasons`: by version of the plan."""
    lines = [" ".join(filter(None, [f"- {one.text}", reasons.get(one.version or 0, "")])) for one in revisions]
    lines += [f"- {review.text}" for review in reviews]
    if faults.faults:
        lines.append("- Faults that the last review found and no one fixed:")
        lines += [f"  {line}" for line in render_fault_list(faults.faults).splitlines()]
    return "\n".join(lines)
