"""A report as it is sent: its text in blocks, with numbered citations and the list of sources that they lead to.

The numbers: one for each cited place, in the order in which the report first cites them.

What a stored report says of its citations in the sections that code has written: pages, and what did not check.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Annotated, Literal, NamedTuple
from unicodedata import bidirectional

from pydantic import Field

from waystation.documents.citations import CITATION_PATTERN, Citation, parse_citations, strip_failed_citation_marks
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.reports.changes import (
    CHANGED_CLAIM_PREFIX,
    CHANGED_CLAIM_SEPARATOR,
    CHANGES_HEADING,
    REMOVED_CLAIM_PREFIX,
)
from waystation.tasks.task import TaskPhase

_SOURCES, _CITATIONS, _ACCOUNT = "\n\n## Sources\n", "\n\n## Citations", "\n\n## How this report came about\n"
_ALL_HOLD, _FAILED = "\n\nAll ", " that did not check\n\n"
_LINES = compile_bounded(r"\blines? (?P<numbers>\d{1,18}(?:–\d{1,18})?(?:, \d{1,18}(?:–\d{1,18})?)*)")
AMBIGUOUS_FILE_STEMS = frozenset({"init", "index", "main", "readme", "license"})
"""Names of files that are the same in many folders."""
_LEAST_PARTS = 2
"""Of the path of such a file."""
PREVIOUS_REPORT_SUFFIX = " (last time)"
"""Behind the name of a document that a claim of the report before cites: its lines may say something else now."""

RIGHT_TO_LEFT_CLASSES = frozenset({"R", "AL"})
"""Unicode's classes of letters that are written so."""

_Place = tuple[str, int, int]
"""Document, first and last line."""


class Inline(Value):
    """Words of one kind, or a citation, which is shown as `[12]`."""

    text: str = ""
    strong: bool = False
    emphasis: bool = False
    code: bool = False
    address: str = ""
    """Where a link leads: http, https or mailto; empty: it is none."""
    source: int = 0
    """The number of the cited source; 0: it is no citation."""


def is_right_to_left(inlines: Iterable[Inline]) -> bool:
    """By the first letter with a direction, as Unicode has it."""
    for inline in inlines:
        for sign in inline.text:
            if (direction := bidirectional(sign)) in {"L", *RIGHT_TO_LEFT_CLASSES}:
                return direction in RIGHT_TO_LEFT_CLASSES
    return False


class ParagraphBlock(Value):
    """A paragraph; its text has a line end where a line has to end."""

    kind: Literal["paragraph"] = "paragraph"
    inlines: tuple[Inline, ...]


class HeadingBlock(Value):
    """A heading of level 1 to 6."""

    kind: Literal["heading"] = "heading"
    level: int
    inlines: tuple[Inline, ...]


class CodeBlock(Value):
    """Text as it is."""

    kind: Literal["code"] = "code"
    text: str


class RuleBlock(Value):
    """A line across."""

    kind: Literal["rule"] = "rule"


class TableBlock(Value):
    """A table: its first row has the heads."""

    kind: Literal["table"] = "table"
    rows: tuple[tuple[tuple[Inline, ...], ...], ...]


class QuoteBlock(Value):
    """What stands apart."""

    kind: Literal["quote"] = "quote"
    blocks: tuple["ReportBlock", ...]


class ListBlock(Value):
    """A list, numbered from `first` on; None: it has bullets."""

    kind: Literal["list"] = "list"
    first: int | None
    items: tuple[tuple["ReportBlock", ...], ...]


ReportBlock = Annotated[
    ParagraphBlock | HeadingBlock | CodeBlock | RuleBlock | TableBlock | QuoteBlock | ListBlock,
    Field(discriminator="kind"),
]


class NumberedSource(Value):
    """A place that the report cites."""

    number: int
    document: str
    """Its name as the task has it; with `(last time)` where it is cited as it was."""
    name: str
    """The end of that path by which it differs from all others that are cited."""
    first_line: int
    last_line: int
    place: str = ""
    """Page, slide, sheet or chapter; empty where the document has none, or the citation did not check."""
    quotation: str | None = None
    """What is quoted from there, where it is first quoted."""
    fault: str = ""
    """Why the citation does not hold; empty: it does."""

    @property
    def where(self) -> str:
        """`page 2, lines 4–9`."""
        one = self.first_line == self.last_line
        lines = f"line {self.first_line}" if one else f"lines {self.first_line}–{self.last_line}"
        return f"{self.place}, {lines}" if self.place else lines


class ReportMetadata(Value):
    """Which report this is."""

    task_id: str
    phase: TaskPhase
    version: int | None = None
    """None: of a draft."""
    stored_at: datetime | None = None
    model: str = ""

    def __str__(self) -> str:
        at = self.stored_at
        number = f"version {self.version}" if self.version is not None else "draft"
        date = f"{at.day} {at:%B %Y}" if at is not None else ""
        return " · ".join(filter(None, [date, self.task_id, number, str(self.phase), self.model]))


class ExportedReport(Value):
    """A report in parts."""

    title: str
    imprint: ReportMetadata
    blocks: tuple[ReportBlock, ...]
    """What agents wrote, with the warnings and the question above it."""
    checked: str = ""
    """What the check of its citations said."""
    sources: tuple[NumberedSource, ...] = ()
    account: tuple[ReportBlock, ...] = ()
    """How it came about, and what was not used."""


class StoredReport(NamedTuple):
    """The Markdown of a report in the parts that it was put together of."""

    body: str
    checked: str
    account: str
    places: Mapping[_Place, str]
    faults: Mapping[str, str]
    """By citation as it is written."""


def parse_stored_report(markdown: str) -> StoredReport:
    """The last of such sections are those that code has written; one of another form is an agent's, and stays."""
    markdown = strip_failed_citation_marks(markdown)
    rest, head, account = markdown.rpartition(_ACCOUNT)
    body = rest if head else markdown
    account = f"{head}{account}".strip() if head else ""
    body, checked, faults = _without_check(body)
    body, places = _without_sources(body)
    return StoredReport(_mark_previous_citations(body), checked, account, places, faults)


def _mark_previous_citations(body: str) -> str:
    """With the places that claims of the report before cite as places of their own."""
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


def _without_check(body: str) -> tuple[str, str, dict[str, str]]:
    before, head, check = body.rpartition(_CITATIONS)
    if head and check.startswith(_ALL_HOLD):
        return before, check.strip(), {}
    if not head or not check.startswith(_FAILED):
        return body, "", {}
    said, _, listed = check.removeprefix(_FAILED).partition("\n\n")
    faults: dict[str, str] = {}
    for line in listed.splitlines():
        if found := CITATION_PATTERN.match(line, 2):
            faults.setdefault(found[0], line[found.end() :].removeprefix(": "))
    return before, said.strip().removesuffix(":") + "; they are marked.", faults


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
    """Of `page 2 (lines 3–4, 7), line 9` each stretch of lines with its place."""
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
    """Of each path the shortest end that no other has; of files that are called the same everywhere with a folder."""
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
    for count in range(min(_LEAST_PARTS if says_nothing else 1, len(parts)), len(parts)):
        if ends[tuple(parts[-count:])] == 1:
            return "/".join(parts[-count:])
    return name


class CitationNumbering:
    """Gives each cited place its number, the first time it is cited."""

    def __init__(self, stored: StoredReport) -> None:
        self._stored = stored
        self._cited: dict[_Place, int] = {}

    def assign_number(self, citation: Citation) -> int:
        """From 1 on."""
        place = (citation.document, citation.first_line, citation.last_line)
        return self._cited.setdefault(place, len(self._cited) + 1)

    def build_sources(self) -> tuple[NumberedSource, ...]:
        """All that were numbered, by number."""
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
            )
            for place, number in self._cited.items()
        )


def render_citation_number(source: NumberedSource) -> str:
    """`[12]`, and `[12?]` where it does not hold."""
    return f"[{source.number}?]" if source.fault else f"[{source.number}]"
