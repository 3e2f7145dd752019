"""A report for export: its text in blocks, its numbered citations, and the list of cited sources.

Each cited place gets one number, in the order of first citation. Pages and failed checks of citations are read from the
sections that code has written into the stored report.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Annotated, Literal, NamedTuple
from unicodedata import bidirectional

from pydantic import Field

from waystation.documents.citations import (
    CITATION_PATTERN,
    Citation,
    parse_citations,
    parse_sentence_mark,
    strip_failed_citation_marks,
)
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.reports.changes import (
    CHANGED_CLAIM_PREFIX,
    CHANGED_CLAIM_SEPARATOR,
    CHANGES_HEADING,
    REMOVED_CLAIM_PREFIX,
)
from waystation.reports.sections import (
    ACCOUNT,
    CHECKED_BY_CODE,
    CITATIONS,
    CITED_SENTENCES,
    COMPARED_BY_CODE,
    DATED,
    DIGEST_DIGITS,
    DOCUMENT_VERSIONS,
    FAILED_CITATIONS,
    FILE,
    RETRIEVED,
    SOURCES,
)
from waystation.tasks.task import TaskPhase

_SOURCES, _ACCOUNT = f"\n\n{SOURCES}\n", f"\n\n{ACCOUNT}\n"
_PASSED, _FAILED = f"\n\n{CITATIONS}\n\n", f"\n\n{FAILED_CITATIONS}\n\n"
_SENTENCES = f"\n\n{CITED_SENTENCES}\n\n"
_SENTENCE_COUNT = compile_bounded(rf"{COMPARED_BY_CODE}(?P<count>[\d,]{{1,20}}) cited sentences?\b")
_LINES = compile_bounded(r"\blines? (?P<numbers>\d{1,18}(?:–\d{1,18})?(?:, \d{1,18}(?:–\d{1,18})?)*)")
_DIGEST = compile_bounded(rf" `([0-9a-f]{{{DIGEST_DIGITS}}})`")
_DAY = compile_bounded(r"\d{4}-\d{2}-\d{2}\)")
AMBIGUOUS_FILE_STEMS = frozenset({"init", "index", "main", "readme", "license"})
"""Stems of file names that occur in many folders."""
_MIN_PARTS = 2
"""Minimum parts of the path that are shown for such a file."""
PREVIOUS_REPORT_SUFFIX = " (last time)"
"""Suffix of a document's name in a citation of the previous report: its lines may say something else now."""

RIGHT_TO_LEFT_CLASSES = frozenset({"R", "AL"})
"""Unicode bidirectional classes of letters that are written right to left."""

_Place = tuple[str, int, int]
"""Document, first line and last line."""


class SentenceMark(Value):
    """A mark behind a sentence that the cited lines do not support, or of which code cannot tell."""

    number: int
    """Number from 1 of an unsupported sentence; 0 if code cannot tell."""
    reason: str
    """What the cited lines lack, or that code cannot tell."""
    is_first: bool = False
    """Whether no mark before it has this number, so that links can lead to it."""


class Inline(Value):
    """Text of one kind, or a citation, which is shown as `[12]`."""

    text: str = ""
    strong: bool = False
    emphasis: bool = False
    code: bool = False
    address: str = ""
    """Target of a link (http, https or mailto); empty if it is none."""
    source: int = 0
    """Number of the cited source; 0 if it is not a citation."""
    mark: SentenceMark | None = None
    """Set if it marks the sentence before it; its text is the mark as in Markdown."""


def is_right_to_left(inlines: Iterable[Inline]) -> bool:
    """Whether the first letter with a direction, as Unicode defines it, is written right to left."""
    for inline in inlines:
        for sign in inline.text:
            if (direction := bidirectional(sign)) in {"L", *RIGHT_TO_LEFT_CLASSES}:
                return direction in RIGHT_TO_LEFT_CLASSES
    return False


class ParagraphBlock(Value):
    """A paragraph; a line end in its text is a line break."""

    kind: Literal["paragraph"] = "paragraph"
    inlines: tuple[Inline, ...]


class HeadingBlock(Value):
    """A heading of level 1 to 6."""

    kind: Literal["heading"] = "heading"
    level: int
    inlines: tuple[Inline, ...]


class CodeBlock(Value):
    """Literal text."""

    kind: Literal["code"] = "code"
    text: str


class RuleBlock(Value):
    """A horizontal rule."""

    kind: Literal["rule"] = "rule"


class TableBlock(Value):
    """A table; its first row is the header."""

    kind: Literal["table"] = "table"
    rows: tuple[tuple[tuple[Inline, ...], ...], ...]


class QuoteBlock(Value):
    """A block quotation."""

    kind: Literal["quote"] = "quote"
    blocks: tuple["ReportBlock", ...]


class ListBlock(Value):
    """A list, numbered from `first`; bulleted if that is None."""

    kind: Literal["list"] = "list"
    first: int | None
    items: tuple[tuple["ReportBlock", ...], ...]


ReportBlock = Annotated[
    ParagraphBlock | HeadingBlock | CodeBlock | RuleBlock | TableBlock | QuoteBlock | ListBlock,
    Field(discriminator="kind"),
]


class SourceMetadata(Value):
    """What the appendix says about a cited document or web page; empty where it says nothing."""

    title: str = ""
    date: str = ""
    """Day that the document states, in ISO 8601."""
    retrieved: str = ""
    """Day on which the page was fetched, in ISO 8601."""
    digest: str = ""
    """First digits of the SHA-256 of its text."""


class NumberedSource(Value):
    """A place that the report cites."""

    number: int
    document: str
    """Name of the document in the task, with `(last time)` if an earlier version is cited."""
    name: str
    """Shortest end of that path that differs from all other cited ones."""
    first_line: int
    last_line: int
    place: str = ""
    """Page, slide, sheet or chapter; empty if the document has none, or the citation failed the check."""
    quotation: str | None = None
    """Text of its first quotation."""
    fault: str = ""
    """Why the citation failed the check; empty if it passed."""
    metadata: SourceMetadata = SourceMetadata()

    @property
    def where(self) -> str:
        """Place with lines: `page 2, lines 4–9`."""
        one = self.first_line == self.last_line
        lines = f"line {self.first_line}" if one else f"lines {self.first_line}–{self.last_line}"
        return f"{self.place}, {lines}" if self.place else lines


class SentenceRemark(Value):
    """What the cited lines of an unsupported sentence lack."""

    number: int
    """Number of the sentence's mark, from 1."""
    text: str


class ReportMetadata(Value):
    """Identifies a report."""

    task_id: str
    phase: TaskPhase
    version: int | None = None
    """Version of the report; None for a draft."""
    stored_at: datetime | None = None
    model: str = ""

    def __str__(self) -> str:
        at = self.stored_at
        number = f"version {self.version}" if self.version is not None else "draft"
        date = f"{at.day} {at:%B %Y}" if at is not None else ""
        return " · ".join(filter(None, [date, self.task_id, number, str(self.phase), self.model]))


class ExportedReport(Value):
    """A report in its parts."""

    title: str
    imprint: ReportMetadata
    blocks: tuple[ReportBlock, ...]
    """Written by agents, preceded by the warnings and the question."""
    checked: str = ""
    """Result of the check of its citations."""
    sources: tuple[NumberedSource, ...] = ()
    remarks: tuple[SentenceRemark, ...] = ()
    """What the lines of unsupported sentences lack, by number."""
    account: tuple[ReportBlock, ...] = ()
    """How it came about, and what was not used."""


class StoredReport(NamedTuple):
    """The Markdown of a report, split into the parts that it was built from."""

    body: str
    checked: str
    account: str
    places: Mapping[_Place, str]
    faults: Mapping[str, str]
    """Failed checks, by the citation as written."""
    sentences: int
    """Number of cited sentences that were checked."""
    remarks: Mapping[int, str]
    """What the lines of unsupported sentences lack, by the numbers of their marks."""
    source_metadata: Mapping[str, SourceMetadata]
    """Cited documents and web pages, by name."""


def parse_stored_report(markdown: str) -> StoredReport:
    """Split a stored report.

    The last sections of each kind are those that code wrote; one of another form is an agent's, and stays.
    """
    markdown = strip_failed_citation_marks(markdown)
    rest, head, account = markdown.rpartition(_ACCOUNT)
    body = rest if head else markdown
    account = f"{head}{account}".strip() if head else ""
    body, compared, sentences, remarks = _without_sentences(body)
    body, checked, faults = _without_check(body)
    checked = " ".join(filter(None, [checked, compared]))
    body, places = _without_sources(body)
    return StoredReport(
        _mark_previous_citations(body),
        checked,
        account,
        places,
        faults,
        sentences,
        remarks,
        _parse_source_metadata(account),
    )


def _parse_source_metadata(account: str) -> dict[str, SourceMetadata]:
    """Return what the appendix says about each cited document, by its name."""
    listed = account.rpartition(f"\n\n{DOCUMENT_VERSIONS}\n")[2].splitlines()
    found = ((_DIGEST.search(line), line) for line in listed if line.startswith("- "))
    return {line[2 : match.start()]: _parse_metadata(match[1], line[match.end() :]) for match, line in found if match}


def _parse_metadata(digest: str, rest: str) -> SourceMetadata:
    """Parse ` (file a): Title (dated 2024-05-31) (retrieved 2026-11-30)`."""
    days: dict[str, str] = {}
    for word in (RETRIEVED, DATED):
        before, mark, day = rest.rpartition(f" ({word} ")
        if mark and _DAY.fullmatch(day):
            rest, days[word] = before, day.removesuffix(")")
    before, opened, named = rest.partition(f" ({FILE} ")
    title = named.partition("): ")[2] if opened and ": " not in before else rest.partition(": ")[2]
    return SourceMetadata(
        title=title.strip(), date=days.get(DATED, ""), retrieved=days.get(RETRIEVED, ""), digest=digest
    )


def _mark_previous_citations(body: str) -> str:
    """Mark citations in claims of the previous report as separate places."""
    before, head, rest = body.partition(f"> {CHANGES_HEADING}")
    if not head:
        return body
    lines = rest.split("\n")
    of_part = sum(1 for _ in takewhile(lambda line: line.startswith(">"), lines[1:])) + 1
    return before + head + "\n".join([*map(_mark_previous_citation, lines[:of_part]), *lines[of_part:]])


def _mark_previous_citation(line: str) -> str:
    if not line.startswith((f"> - {CHANGED_CLAIM_PREFIX}", f"> - {REMOVED_CLAIM_PREFIX}")):
        return line
    was, became, is_now = line.partition(CHANGED_CLAIM_SEPARATOR)
    return CITATION_PATTERN.sub(rf"[\g<document>{PREVIOUS_REPORT_SUFFIX}:\g<first>-\g<last>]", was) + became + is_now


def _without_sentences(body: str) -> tuple[str, str, int, dict[int, str]]:
    before, head, section = body.rpartition(_SENTENCES)
    count = _SENTENCE_COUNT.match(section)
    if not head or count is None:
        return body, "", 0, {}
    said, _, listed = section.partition("\n\n")
    remarks: dict[int, str] = {}
    for line in listed.splitlines():
        mark, _, remark = line.removeprefix("- ").partition(" ")
        if number := parse_sentence_mark(mark):
            remarks[number] = remark
    return before, " ".join(said.split()), int(count["count"].replace(",", "")), remarks


def _without_check(body: str) -> tuple[str, str, dict[str, str]]:
    before, head, check = body.rpartition(_PASSED)
    if head and check.startswith(CHECKED_BY_CODE):
        return before, check.strip(), {}
    before, head, check = body.rpartition(_FAILED)
    said, _, listed = check.partition("\n\n")
    if not head or not said.endswith(":") or "\n" in said:
        return body, "", {}
    faults: dict[str, str] = {}
    failed = [line for line in listed.splitlines() if line.startswith("- ")]
    for line in failed:
        if found := CITATION_PATTERN.match(line, 2):
            faults.setdefault(found[0], line[found.end() :].removeprefix(": "))
    verb = "is" if len(failed) == 1 else "are"
    return before, f"{said.removesuffix(':')} and {verb} marked in the text.", faults


def _without_sources(body: str) -> tuple[str, dict[_Place, str]]:
    before, head, listed = body.rpartition(_SOURCES)
    places: dict[_Place, str] = {}
    for line in listed.strip().splitlines() if head else ():
        name, _, cited = line.removeprefix("- ").partition(": ")
        found = _places(name, cited)
        if not line.startswith("- ") or not found:
            return body, {}
        places |= found
    return (before, places) if places else (body, {})


def _places(name: str, cited: str) -> dict[_Place, str]:
    """Return each range of lines in `page 2 (lines 3–4, 7), line 9` with its place."""
    found: dict[_Place, str] = {}
    end = 0
    for match in _LINES.finditer(cited):
        between, end = cited[end : match.start()], match.end()
        place = between.lstrip("), ").removesuffix("(").strip() if between.endswith("(") else ""
        for numbers in match["numbers"].split(", "):
            first, _, last = numbers.partition("–")
            found[name, int(first), int(last or first)] = place
    return found


def compute_shortest_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each path its shortest unique end; for files with a common name, together with a folder."""
    paths = {name: PurePosixPath(name).parts for name in names}
    ends: dict[tuple[str, ...], int] = {}
    for parts in paths.values():
        for place in range(len(parts)):
            ends[parts[place:]] = ends.get(parts[place:], 0) + 1
    return {name: _shortest(name, parts, ends) for name, parts in paths.items()}


def _shortest(name: str, parts: Sequence[str], ends: Mapping[tuple[str, ...], int]) -> str:
    if "://" in name or not parts:
        return name
    says_nothing = parts[-1].partition(".")[0].strip("_").lower() in AMBIGUOUS_FILE_STEMS
    for count in range(min(_MIN_PARTS if says_nothing else 1, len(parts)), len(parts)):
        if ends[tuple(parts[-count:])] == 1:
            return "/".join(parts[-count:])
    return name


UNDECIDED_REASON = "Code could not decide whether the cited lines support this sentence"


class CitationNumbering:
    """Assigns each cited place a number when it is first cited, and resolves the marks of sentences."""

    def __init__(self, stored: StoredReport) -> None:
        self._stored = stored
        self._cited: dict[_Place, int] = {}
        self._marked: set[int] = set()

    def resolve_mark(self, written: str) -> SentenceMark | None:
        """Return the mark of a sentence; None if the report has no remark with its number."""
        number = parse_sentence_mark(written)
        if number == 0:
            return SentenceMark(number=0, reason=UNDECIDED_REASON)
        if number is None or (reason := self._stored.remarks.get(number)) is None:
            return None
        is_first = number not in self._marked
        self._marked.add(number)
        return SentenceMark(number=number, reason=reason, is_first=is_first)

    def assign_place_number(self, citation: Citation) -> int:
        """Return the number of the cited place, from 1: equal for citations of the same lines of a document."""
        place = (citation.document, citation.first_line, citation.last_line)
        return self._cited.setdefault(place, len(self._cited) + 1)

    def build_sources(self) -> tuple[NumberedSource, ...]:
        """Return all numbered sources, by number."""
        names = compute_shortest_names({document for document, _, _ in self._cited})
        quoted: dict[_Place, str] = {}
        for one in parse_citations(self._stored.body):
            if one.quotation is not None:
                quoted.setdefault((one.document, one.first_line, one.last_line), one.quotation)
        return tuple(
            NumberedSource(
                number=number,
                document=place[0],
                name=names[place[0]],
                first_line=place[1],
                last_line=place[2],
                place=self._stored.places.get(place, ""),
                quotation=quoted.get(place),
                fault=self._stored.faults.get(f"[{place[0]}:{place[1]}-{place[2]}]", ""),
                metadata=self._stored.source_metadata.get(place[0], SourceMetadata()),
            )
            for place, number in self._cited.items()
        )


def render_mark_number(number: int) -> str:
    """Render the number of an unsupported sentence's mark, which is set superscript, as `(3)`."""
    return f"({number})"


def render_citation_number(source: NumberedSource) -> str:
    """Render the number as `[12]`, or `[12?]` if the citation failed the check."""
    return f"[{source.number}?]" if source.fault else f"[{source.number}]"
