"""Finds citations `[document:first-last]` in Markdown, checks them against documents, and splits text into claims."""

import re
import unicodedata
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, groupby
from typing import NamedTuple, final

from waystation.documents.documents import parse_place_marker
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.security.untrusted import unescape_tags

FAILED_CITATION_MARK = " **(failed check)**"
"""Mark after a citation that failed the check."""
UNDECIDED_SENTENCE_MARK = "°"
"""Mark after the citations of a sentence of which code cannot tell whether the cited lines support it."""
_SUPERSCRIPT_DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹"
_TO_SUPERSCRIPT = str.maketrans("0123456789", _SUPERSCRIPT_DIGITS)
_FROM_SUPERSCRIPT = str.maketrans(_SUPERSCRIPT_DIGITS, "0123456789")
SENTENCE_MARK_PATTERN = compile_bounded(rf"{UNDECIDED_SENTENCE_MARK}|⁽(?P<number>[{_SUPERSCRIPT_DIGITS}]{{1,6}})⁾")
"""Marks of sentences, which follow their last citation."""
MIN_FOLDED_CHARACTERS = 6
"""Minimum letters and digits of a quotation that is looked for regardless of punctuation."""
_MAX_QUOTATION_DEPTH = 8
"""Maximum depth of quotations within quotations."""
QUOTATION_MARKS: Mapping[str, str] = {
    '"': '"',
    "”": "“„",
    "“": "„",
    "»": "«",
    "«": "»",
    "」": "「",
    "』": "『",
}
"""By closing mark: those that open, in the usage of any language."""
CITATION_PATTERN = compile_bounded(r"\[(?P<document>[^\[\]\n]+):(?P<first>\d+)-(?P<last>\d+)\]")
MIN_QUOTATION_CHARACTERS, MAX_QUOTATION_CHARACTERS = 8, 2_000
"""Minimum and maximum characters between quotation marks."""
MAX_QUOTATION_DISTANCE = 2_100
"""Maximum characters between a citation and the start of its quotation, including the marks."""
MAX_TABLE_ROWS = 2_000
"""Maximum rows between a row and the first one of its table."""
_CELL_SEPARATORS = (",", ";", "\t", "|")
_PROSE_ENDS = (".", "!", "?", ":", ",")
"""Ends of lines that are no rows, although prose has separators too."""
_HEADING = compile_bounded(r"#{1,6} \S")
_YEARS_ABOVE_COLUMNS = compile_bounded(
    r"\b(?:19|20)\d\d[ \t|]{1,9}(?:[A-Z][a-z]{2,8}\.? \d{1,2},?[ \t|]{1,9})?(?:19|20)\d\d[ \t|]{0,9}\Z"
)
"""End of a line such as `(in millions) 2023 2022` or `May 7, 2023 | May 8, 2022`."""
_LAST_FIGURE = compile_bounded(r"[\d—–-][ \t%)|]{0,9}\Z")
"""End of a row of a table."""
_MAX_END_CHARACTERS = 60
"""Characters of a line in which these ends are looked for."""
_MAX_ROWS_BELOW_YEARS = 60
_MIN_PROSE_WORDS = 8
_MAX_LINE_DIGITS = 18
"""Maximum digits of a line number. Longer ones are lines of no document, and `int` rejects those with thousands of
digits.
"""
NO_LINE = 10**_MAX_LINE_DIGITS
MAX_PLACEHOLDER_GAP = 400
"""Maximum characters that one placeholder may stand for."""
MAX_SEARCHED_CHARACTERS = 20_000
"""Maximum characters, from the first cited line, in which a quotation is looked for."""
MAX_COMPARED_OCCURRENCES = 100
"""Maximum occurrences of a quotation of which the nearest is chosen."""
NO_SUCH_DOCUMENT = "there is no such document"
QUOTATION_NOT_FOUND = "the quoted words are not in these lines"
QUOTATION_NOT_FOUND_NEARBY = (
    f"the quoted words are not in the first {MAX_SEARCHED_CHARACTERS:,} characters of these lines; cite only the lines "
    "that contain them"
)


class Citation(Value):
    """One citation, with the quotation directly before it, if there is one."""

    document: str
    first_line: int
    last_line: int
    quotation: str | None = None

    def __str__(self) -> str:
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class FailedCitation(Value):
    """A citation that failed the check, and why."""

    citation: Citation
    reason: str


_ROUND_BRACKETS = str.maketrans("[]", "()")
"""A document's citation within a quotation would be one of the report. It gets round brackets there, so they are
compared as equal.
"""


@final
class CitedDocument:
    """A document that citations are checked against.

    What is derived from its lines is computed once, on first use, so that the time for many citations of a long
    document is the sum of both, not the product.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._lines)

    def list_lines(self, first_line: int, last_line: int) -> Sequence[str]:
        """Return these lines, counted from 1, as far as they exist."""
        return self._lines[max(0, first_line - 1) : last_line]

    def find_place(self, line: int) -> str | None:
        """Return the place of a line, counted from 1: the nearest marker at or above it. None if there is none."""
        above = bisect_right(self._places, line, key=_marking_line)
        return self._places[above - 1][1] if above else None

    def list_lines_above(self, line: int) -> list[str]:
        """Return what labels this line, counted from 1: its place, the nearest heading, its table's first row, and the
        years above its columns.
        """
        above = bisect_right(self._headings, line)
        heading = self._headings[above - 1] if above else 0
        place = bisect_right(self._places, line, key=_marking_line)
        begin = self._places[place - 1][0] if place else 0
        of_table = self._find_table_start(line, begin), self._find_years(line, begin)
        labels = [one for one in (begin, heading, *of_table) if 0 < one < line]
        return [self._lines[one - 1] for one in dict.fromkeys(labels)]

    def _find_table_start(self, line: int, place: int) -> int:
        """Return the first line of the table that a row is in: of adjacent rows, or of lines with as many separators
        as the first one of the sheet or document. 0 if it is no row.
        """
        row = self._lines[line - 1]
        if row.lstrip().startswith("|"):
            first = line
            while first > max(1, line - MAX_TABLE_ROWS) and self._lines[first - 2].lstrip().startswith("|"):
                first -= 1
            return first
        first = next((one for one in range(place + 1, min(place + 4, line)) if self._lines[one - 1].strip()), 0)
        if row.endswith(_PROSE_ENDS) or (first and self._lines[first - 1].endswith(_PROSE_ENDS)):
            return 0
        signs = [sign for sign in _CELL_SEPARATORS if sign in row]
        return first if first and any(self._lines[first - 1].count(sign) == row.count(sign) for sign in signs) else 0

    def _find_years(self, line: int, place: int) -> int:
        """Return the line with the years above the columns of a row, as in a table of a PDF, which has no separators.
        0 if there is none on the same page, or the line is no row.
        """
        row = self._lines[line - 1]
        if not _LAST_FIGURE.search(row[-_MAX_END_CHARACTERS:]) or not any(map(str.isalpha, row)):
            return 0
        for number in range(line - 1, max(place, line - 1 - _MAX_ROWS_BELOW_YEARS), -1):
            above = self._lines[number - 1]
            if _YEARS_ABOVE_COLUMNS.search(above[-_MAX_END_CHARACTERS:]):
                return number
            if above.endswith(".") and len(above.split()) >= _MIN_PROSE_WORDS:
                return 0
        return 0

    def find_quotation_fault(self, quotation: str, first_line: int, last_line: int) -> str | None:
        """Return why these lines do not contain the quotation; None if they do.

        White space counts as one space, a square bracket as a round one, and a tag that was escaped for the agent as
        the tag.
        """
        text, ends = self._words
        begin, end = ends[first_line - 1], ends[last_line]
        # The space between two lines belongs to the second, and is not part of the cited words.
        begin += text.startswith(" ", begin)
        searched = min(end, begin + MAX_SEARCHED_CHARACTERS)
        if _Quoted.of(unescape_tags(quotation).translate(_ROUND_BRACKETS)).is_found_in(text[begin:searched]):
            return None
        return QUOTATION_NOT_FOUND_NEARBY if searched < end else QUOTATION_NOT_FOUND

    def find_original_wording(self, quotation: str, first_line: int, last_line: int) -> str | None:
        """Return the wording in these lines if the quotation only differs in punctuation, spaces and capitals, with
        single spaces; None if they contain nothing like it. Whatever distinguishes numbers is not a small difference.
        """
        text, ends, folded = self._folded
        words = " ".join(quotation.split())
        wanted = _Folded.of(words)
        if len(wanted.signs) < MIN_FOLDED_CHARACTERS:
            return None
        begin, end = ends[first_line - 1], min(ends[last_line], ends[first_line - 1] + MAX_SEARCHED_CHARACTERS)
        found = folded.signs.find(wanted.signs, bisect_left(folded.origins, begin), bisect_left(folded.origins, end))
        if found < 0:
            return None
        first, last = folded.origins[found], folded.origins[found + len(wanted.signs) - 1] + 1
        opening, closing = words[: wanted.origins[0]], words[wanted.origins[-1] + 1 :]
        first -= len(opening) if text.endswith(opening, begin, first) else 0
        last += len(closing) if text.startswith(closing, last, end) else 0
        return CITATION_PATTERN.sub(lambda match: match[0].translate(_ROUND_BRACKETS), text[first:last])

    def find_quotation_lines(self, quotation: str, near_line: int = 1) -> tuple[int, int] | None:
        """Return the first and last line of the quotation, word for word or nearly so; None if it is not there.

        Of a quotation with placeholders, its longest part is looked for. Of several occurrences among the first
        `MAX_COMPARED_OCCURRENCES`, the nearest counts.
        """
        words = " ".join(unescape_tags(quotation).translate(_ROUND_BRACKETS).split())
        part = max(PLACEHOLDER_PATTERN.split(words), key=len).strip()
        if len(part) < MIN_QUOTATION_CHARACTERS:
            return None
        text, ends = self._words
        spans = [(place, place + len(part)) for place in _iter_occurrences(part, text)]
        if not spans:
            _, ends, folded = self._folded
            signs = _Folded.of(part).signs
            if len(signs) < MIN_FOLDED_CHARACTERS:
                return None
            spans = [
                (folded.origins[place], folded.origins[place + len(signs) - 1] + 1)
                for place in _iter_occurrences(signs, folded.signs)
            ]
        found = [(bisect_right(ends, first), bisect_left(ends, last)) for first, last in spans]
        return min(found, key=lambda lines: abs(lines[0] - near_line), default=None)

    @cached_property
    def _folded(self) -> tuple[str, list[int], "_Folded"]:
        """All words with single spaces, the end of each line in that text, and the text folded."""
        words = [" ".join(line.split()) for line in self._lines]
        text = " ".join(words)
        return text, [0, *accumulate(len(kept) + 1 for kept in words)], _Folded.of(text)

    @cached_property
    def _headings(self) -> list[int]:
        """The lines with headings of Markdown."""
        return [number for number, line in enumerate(self._lines, 1) if _HEADING.match(line)]

    @cached_property
    def _places(self) -> list[tuple[int, str]]:
        """The lines with place markers, and the places."""
        marked = ((number, parse_place_marker(line)) for number, line in enumerate(self._lines, 1))
        return [(number, place) for number, place in marked if place]

    @cached_property
    def _words(self) -> tuple[str, list[int]]:
        """All words with single spaces, and the end of each line in that text, starting with 0."""
        words: list[str] = []
        ends = [0]
        for line in self._lines:
            kept = unescape_tags(" ".join(line.translate(_ROUND_BRACKETS).split()))
            # No space before the very first words.
            words.append(f" {kept}" if kept and ends[-1] else kept)
            ends.append(ends[-1] + len(words[-1]))
        return "".join(words), ends


def _iter_occurrences(part: str, text: str) -> Iterator[int]:
    place = text.find(part)
    for _ in range(MAX_COMPARED_OCCURRENCES):
        if place < 0:
            return
        yield place
        place = text.find(part, place + len(part))


class _Folded(NamedTuple):
    """A text without its punctuation, spaces and capitals."""

    signs: str
    origins: Sequence[int]
    """Position of each character in the text."""

    @staticmethod
    def of(text: str) -> "_Folded":
        signs, origins, place = list[str](), array("Q"), 0
        for is_word, run in groupby(text, str.isalnum):
            letters = "".join(run)
            end = place + len(letters)
            before, after = text[max(0, place - 1) : place], text[end : end + 1]
            kept = range(len(letters)) if is_word else _telling(letters, before, after)
            for index in kept:
                signs.append(lower if len(lower := letters[index].lower()) == 1 else letters[index])
                origins.append(place + index)
            place = end
        return _Folded("".join(signs), origins)


def _telling(run: str, before: str, after: str) -> Sequence[int]:
    """Return the positions of characters between two words that carry meaning: all between two digits, those directly
    before a number, and all that are not punctuation.
    """
    if after.isdigit() and before.isdigit():
        return range(len(run))
    telling = [index for index, sign in enumerate(run) if sign == "%" or unicodedata.category(sign)[0] not in "PZC"]
    minus = len(run) - 1
    if after.isdigit() and run[minus] in "-−–" and (minus or not before) and minus not in telling:
        telling.append(minus)
    return telling


def _marking_line(marked: tuple[int, str]) -> int:
    return marked[0]


def with_plain_places(markdown: str) -> str:
    """Shorten citations for people: `[a.md:7]` if a citation is of one line or page."""
    return CITATION_PATTERN.sub(
        lambda match: f"[{match['document']}:{match['first']}]" if match["first"] == match["last"] else match[0],
        markdown,
    )


def parse_citations(markdown: str) -> tuple[Citation, ...]:
    """Return every citation in order, each combination of place and quotation once."""
    return tuple(dict.fromkeys(_citation(match, markdown) for match in CITATION_PATTERN.finditer(markdown)))


def _citation(match: re.Match[str], markdown: str) -> Citation:
    return Citation(
        document=match["document"],
        first_line=_line(match["first"]),
        last_line=_line(match["last"]),
        quotation=_quotation_before(match.start(), markdown),
    )


def _line(digits: str) -> int:
    return int(digits) if len(digits) <= _MAX_LINE_DIGITS else NO_LINE


def _quotation_before(end: int, markdown: str) -> str | None:
    """Return the text between quotation marks on one line that ends at `end`, followed by white space at most."""
    span = _quoted_span(end, markdown)
    return None if span is None else markdown[span.start : span.stop]


def _quoted_span(end: int, markdown: str) -> slice | None:
    """Return the span of that text, without its marks."""
    least = max(0, end - MAX_QUOTATION_DISTANCE)
    closing = markdown[least:end].rpartition("\n")[2].rstrip()
    mark = closing[-1:]
    if mark not in QUOTATION_MARKS:
        return None
    before = closing[:-1]
    opening = _opening(before, mark)
    quoted = len(before) - opening - 1
    if opening < 0 or before[opening] == "”" or not MIN_QUOTATION_CHARACTERS <= quoted <= MAX_QUOTATION_CHARACTERS:
        return None
    line = max(least, markdown.rfind("\n", least, end) + 1)
    return slice(line + opening + 1, line + len(before))


def _opening(before: str, mark: str) -> int:
    """Return where the quotation opens that this mark closes: at the mark's own opening one, skipping whole quotations
    within it. If there is none, English marks open at the nearest English mark, and others nowhere.
    """
    place, nests = len(before), mark != '"'
    for depth in range(_MAX_QUOTATION_DEPTH if nests else 0):
        opening = max(before.rfind(sign, 0, place) for sign in QUOTATION_MARKS[mark])
        if opening < 0:
            break
        if before.count(mark, opening) == depth:
            return opening
        place = opening
    return max(map(before.rfind, '"“”')) if mark in '"”' else -1


def _fault(citation: Citation, documents: Mapping[str, CitedDocument]) -> str | None:
    """Return why the citation fails the check; None if it passes.

    The document must exist and have these lines, and a quotation must be in them word for word (white space aside;
    redacted parts are taken as they are).
    """
    document = documents.get(citation.document)
    if document is None:
        return NO_SUCH_DOCUMENT
    if not 1 <= citation.first_line <= citation.last_line <= len(document):
        return f"the document has {format_count(len(document), 'line')}"
    if citation.quotation is None:
        return None
    return document.find_quotation_fault(citation.quotation, citation.first_line, citation.last_line)


def check_citations(
    citations: Iterable[Citation], documents: Mapping[str, CitedDocument]
) -> dict[Citation, str | None]:
    """Return what is wrong with each citation, in their order."""
    return {citation: _fault(citation, documents) for citation in citations}


class CorrectionResult(NamedTuple):
    """A text whose quotations match the documents, with failed citations marked."""

    markdown: str
    faults: dict[Citation, str | None]


def correct_quotations(
    markdown: str, faults: Mapping[Citation, str | None], documents: Mapping[str, CitedDocument]
) -> CorrectionResult:
    """Replace quotations that differ slightly from the cited lines by their wording.

    `faults`: the result for each citation.
    """
    pieces, end, held = list[str](), 0, dict[Citation, str | None]()
    for match in CITATION_PATTERN.finditer(markdown):
        citation = _citation(match, markdown)
        reason, span = faults[citation], _quoted_span(match.start(), markdown)
        words = _words_of(citation, reason, documents)
        if words is not None and span is not None and (quoted := _between_marks(words, markdown, span)):
            pieces += markdown[end : span.start - 1], quoted, markdown[span.stop + 1 : match.end()]
            citation, reason = citation.replace(quotation=words), None
        else:
            pieces.append(markdown[end : match.end()])
            if reason is not None and not markdown.startswith(FAILED_CITATION_MARK, match.end()):
                pieces.append(FAILED_CITATION_MARK)
        end = match.end()
        held.setdefault(citation, reason)
    return CorrectionResult("".join([*pieces, markdown[end:]]), held)


def strip_failed_citation_marks(markdown: str) -> str:
    """Remove the marks of failed citations, for code that shows or reads citations differently."""
    return markdown.replace(FAILED_CITATION_MARK, "")


def render_unsupported_sentence_mark(number: int) -> str:
    """Render the mark of a sentence that its cited lines do not support: `⁽12⁾` with superscript digits."""
    return f"⁽{str(number).translate(_TO_SUPERSCRIPT)}⁾"


def parse_sentence_mark(mark: str) -> int | None:
    """Return the number of an unsupported sentence's mark; 0 for the mark of an undecided one; None for other texts."""
    match = SENTENCE_MARK_PATTERN.fullmatch(mark)
    if match is None:
        return None
    return int(match["number"].translate(_FROM_SUPERSCRIPT)) if match["number"] else 0


def _words_of(citation: Citation, reason: str | None, documents: Mapping[str, CitedDocument]) -> str | None:
    if reason not in {QUOTATION_NOT_FOUND, QUOTATION_NOT_FOUND_NEARBY} or citation.quotation is None:
        return None
    document = documents[citation.document]
    words = document.find_original_wording(citation.quotation, citation.first_line, citation.last_line)
    # The replacement must pass the check.
    if words is None or document.find_quotation_fault(words, citation.first_line, citation.last_line) is not None:
        return None
    return words


def _between_marks(words: str, markdown: str, span: slice) -> str | None:
    """Put the words between the original quotation marks, or others that differ from marks within; None if none
    does.
    """
    own = f"{markdown[span.start - 1]}{words}{markdown[span.stop]}"
    return next((one for one in (own, f"“{words}”") if _quotation_before(len(one), one) == words), None)


class _Part(NamedTuple):
    """Words of a quotation, and the number of placeholders before them."""

    placeholders: int
    words: str


class _Quoted(NamedTuple):
    """A quotation as its words and the gaps that its placeholders leave between them."""

    parts: Sequence[_Part]
    """The first has no placeholders before it, and the last may have no words; all others have both."""
    placeholders_behind: int

    @staticmethod
    def of(quotation: str) -> "_Quoted":
        first, *rest = PLACEHOLDER_PATTERN.split(" ".join(quotation.split()))
        parts, placeholders = [_Part(0, first)], 0
        for words in rest:
            placeholders += 1
            if words:
                parts.append(_Part(placeholders, words))
                placeholders = 0
        return _Quoted(parts, placeholders)

    def is_found_in(self, text: str) -> bool:
        """Whether the words occur in the text in order, with 1 to 400 characters for each placeholder between them.

        All positions are computed at once: a number has a bit for each position at which the part so far may end. A
        search from each of these positions would try every combination of gaps.
        """
        if not all(part.words in text for part in self.parts):
            return False
        if len(self.parts) == 1 and not self.placeholders_behind:
            return True
        letters = _places_of(text, {letter for part in self.parts for letter in part.words})
        all_places = (1 << len(text) + 1) - 1
        ends = all_places
        for part in self.parts:
            ends = _spread(ends, part.placeholders) & all_places
            for letter in part.words:
                ends = (ends & letters[letter]) << 1
        return bool(ends << self.placeholders_behind & all_places)


def _places_of(text: str, letters: Iterable[str]) -> dict[str, int]:
    """Return for each letter a number with a bit for each position of it: the lowest bit is the first position."""
    bits = {letter: bytearray(len(text) // 8 + 1) for letter in letters}
    for place, letter in enumerate(text):
        if (of_letter := bits.get(letter)) is not None:
            of_letter[place >> 3] |= 1 << (place & 7)
    return {letter: int.from_bytes(of_letter, "little") for letter, of_letter in bits.items()}


def _spread(places: int, placeholders: int) -> int:
    """Shift each position by every length that so many placeholders may stand for."""
    if not placeholders:
        return places
    # Shifted by 0 up to `reached`, which doubles each time.
    spread, reached, most = places, 0, placeholders * (MAX_PLACEHOLDER_GAP - 1)
    while reached < most:
        step = min(reached + 1, most - reached)
        spread |= spread << step
        reached += step
    return spread << placeholders


_BULLET = compile_bounded(r"\A\s*+(?:[-*+•]|\d{1,4}[.)])\s++")
_SENTENCE_END = compile_bounded(
    r"(?<=[.!?])[\"”')*_]{0,3} {1,3}(?=[^\W\d_a-z]|[\"“(*`])|(?<=[。！？]) {0,3}(?=[^\s。！？”’』」）)])"
)
_NOT_SAID = " .,;:()[]*_-–—|>"
"""Stripped around a claim, and between two citations of one."""


class Claim(Value):
    """A sentence of a text, or a quotation of several; on one line, without its citations."""

    text: str
    citations: tuple[Citation, ...] = ()

    @property
    def is_pointer_only(self) -> bool:
        """Whether it has a citation and otherwise only names its document, as in a list of places to look at."""
        if not self.citations:
            return False
        name = self.citations[0].document
        rest = self.text.strip("*`_ ").removesuffix(name).removesuffix(name.rpartition("/")[2].partition(".")[0])
        return not rest.strip("*`_ ") or rest.rstrip("*`_ ").endswith(":")


class LocatedClaim(NamedTuple):
    """A claim with citations, and where its mark stands or belongs in the text."""

    claim: Claim
    mark_start: int
    """Position behind its last citation, and behind the mark of a failed one."""
    mark_end: int
    """Position behind the mark of the sentence; the same if it has none."""


def extract_claims(markdown: str) -> tuple[Claim, ...]:
    """Return every sentence in order.

    A citation belongs to the text before it, back to the beginning of the sentence; headings, rules and lines of
    punctuation are not claims. Marks are not part of them.
    """
    return tuple(claim for claim, _ in _iter_claims(markdown))


def iter_cited_claims(markdown: str) -> Iterator[LocatedClaim]:
    """Yield every sentence that has citations, in order, except those that only name a document."""
    for claim, mark in _iter_claims(markdown):
        if mark is not None and not claim.is_pointer_only:
            yield LocatedClaim(claim, mark.start, mark.stop)


def _iter_claims(markdown: str) -> Iterator[tuple[Claim, slice | None]]:
    """Yield every claim, with the span of its mark in the text if it has citations."""
    begin = 0
    for line in markdown.splitlines(keepends=True):
        if not line.startswith("#"):
            yield from _claims_of(line, begin)
        begin += len(line)


def _claims_of(line: str, begin: int) -> Iterator[tuple[Claim, slice | None]]:
    bullet = _BULLET.match(line)
    said, end, behind = "", bullet.end() if bullet else 0, list[Citation]()
    mark = slice(0, 0)
    for match in CITATION_PATTERN.finditer(line):
        between = line[end : match.start()]
        if behind and between.strip(_NOT_SAID):
            yield from _sentences(said, tuple(behind), mark)
            said, behind = "", []
        if not behind:
            said = between
        behind.append(_citation(match, line))
        mark = _find_mark(line, match.end())
        end = mark.stop
        mark = slice(begin + mark.start, begin + mark.stop)
    yield from _sentences(said, tuple(behind), mark)
    yield from _sentences(line[end:], ())


def _find_mark(line: str, end: int) -> slice:
    """Return the span of the sentence's mark behind a citation that ends here; empty where it belongs."""
    start = end + len(FAILED_CITATION_MARK) * line.startswith(FAILED_CITATION_MARK, end)
    found = SENTENCE_MARK_PATTERN.match(line, start)
    return slice(start, found.end() if found else start)


def _sentences(
    text: str, citations: tuple[Citation, ...], mark: slice | None = None
) -> Iterator[tuple[Claim, slice | None]]:
    """Split the text into sentences, the last of which gets the citations.

    A quotation at the end belongs to one claim, since it may contain sentence ends too.
    """
    text = " ".join(text.split()).lstrip(" .,;:)]–—|")
    closing = text[-1:]
    opening = _opening(text[:-1], closing) if closing in QUOTATION_MARKS else len(text)
    *before, last = _split_sentences(text, opening)
    yield from ((Claim(text=part), None) for part in before if part.strip(_NOT_SAID))
    if last.strip(_NOT_SAID):
        yield Claim(text=last.strip(), citations=citations), mark


def _split_sentences(text: str, limit: int) -> list[str]:
    """Split the text at the ends of sentences that are not beyond this position."""
    parts, begin = list[str](), 0
    for found in _SENTENCE_END.finditer(text):
        if found.end() > limit:
            break
        parts.append(text[begin : found.start()].strip())
        begin = found.end()
    return [*parts, text[begin:].strip()]
