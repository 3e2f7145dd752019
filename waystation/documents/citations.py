"""Citations `[document:first-last]`: found in Markdown, and checked by code against the documents.

Claims: the sentences of a Markdown text, each with the citations that stand behind it.
"""

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
from waystation.kernel.value import Value
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.security.untrusted import unescape_tags

FAILED_CITATION_MARK = " **(does not hold)**"
"""Behind a citation, where that is so."""
MIN_FOLDED_CHARACTERS = 6
"""Letters and digits of a quotation that is looked for without its signs."""
_DEEPEST_QUOTED = 8
"""Quotations in a quotation."""
CITATION_PATTERN = compile_bounded(r"\[(?P<document>[^\[\]\n]+):(?P<first>\d+)-(?P<last>\d+)\]")
MIN_QUOTATION_CHARACTERS, MAX_QUOTATION_CHARACTERS = 8, 2_000
"""Characters between quotation marks."""
MAX_QUOTATION_DISTANCE = 2_100
"""Characters in which the quotation of a citation stands before it, with its marks and what is between them."""
_MOST_DIGITS = 18
"""Of a line's number as it is read. Longer ones are no line of any document, and `int` refuses those of thousands."""
NO_LINE = 10**_MOST_DIGITS
MAX_PLACEHOLDER_GAP = 400
"""Characters that one placeholder may stand for."""
MAX_SEARCHED_CHARACTERS = 20_000
"""Characters, from the first of the cited lines, in which a quotation is looked for."""
QUOTATION_NOT_FOUND = "the quoted words do not stand there"
QUOTATION_NOT_FOUND_NEARBY = (
    f"the quoted words do not stand in the first {MAX_SEARCHED_CHARACTERS:,} characters of these lines: cite the "
    "lines that they "
    "stand in"
)


class Citation(Value):
    """One citation, with the quotation that stands directly before it, if there is one."""

    document: str
    first_line: int
    last_line: int
    quotation: str | None = None

    def __str__(self) -> str:
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class FailedCitation(Value):
    """A citation that does not hold, and why."""

    citation: Citation
    reason: str


@final
class CitedDocument:
    """A document that citations are held against: what is made of its lines is made once, when it is first asked for,
    so that many citations of a long document take no longer than both together.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        """How many lines it has."""
        return len(self._lines)

    def find_place(self, line: int) -> str | None:
        """The place of a line, counted from 1: what the nearest marker at or above it says. None: there is none."""
        above = bisect_right(self._places, line, key=_marking_line)
        return self._places[above - 1][1] if above else None

    def find_quotation_fault(self, quotation: str, first_line: int, last_line: int) -> str | None:
        """Why these lines do not have the quoted words; None: they do. White space counts as one space, and a tag that
        was defused for the agent as the tag.
        """
        text, ends = self._words
        begin, end = ends[first_line - 1], ends[last_line]
        # The space between two lines belongs to the second, and is none of the cited words.
        begin += text.startswith(" ", begin)
        searched = min(end, begin + MAX_SEARCHED_CHARACTERS)
        if _Quoted.of(unescape_tags(quotation)).is_found_in(text[begin:searched]):
            return None
        return QUOTATION_NOT_FOUND_NEARBY if searched < end else QUOTATION_NOT_FOUND

    def find_original_wording(self, quotation: str, first_line: int, last_line: int) -> str | None:
        """What these lines say where the quotation differs from them in signs, spaces and capitals alone: as it stands
        there, with one space for white space. None: they say nothing like it. What tells numbers apart is no small
        difference.
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
        return text[first:last]

    @cached_property
    def _folded(self) -> tuple[str, list[int], "_Folded"]:
        """All words as they stand, with one space between them; how far each line of them reaches; all of it folded."""
        words = [" ".join(line.split()) for line in self._lines]
        text = " ".join(words)
        return text, [0, *accumulate(len(kept) + 1 for kept in words)], _Folded.of(text)

    @cached_property
    def _places(self) -> list[tuple[int, str]]:
        """The lines that mark places, with what they say."""
        marked = ((number, parse_place_marker(line)) for number, line in enumerate(self._lines, 1))
        return [(number, place) for number, place in marked if place]

    @cached_property
    def _words(self) -> tuple[str, list[int]]:
        """All words with one space between them, and how far each line of them reaches; the first reaches nowhere."""
        words: list[str] = []
        ends = [0]
        for line in self._lines:
            kept = unescape_tags(" ".join(line.split()))
            # No space before the first words of all.
            words.append(f" {kept}" if kept and ends[-1] else kept)
            ends.append(ends[-1] + len(words[-1]))
        return "".join(words), ends


class _Folded(NamedTuple):
    """A text without its punctuation, spaces and capitals."""

    signs: str
    origins: Sequence[int]
    """Where each of them stands in the text."""

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
    """Which signs between two words tell what is said: all between two digits, those right before a number, and all
    that are no punctuation.
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
    """For people who read it: `[a.md:7]` where a citation is of one line or page."""
    return CITATION_PATTERN.sub(
        lambda match: f"[{match['document']}:{match['first']}]" if match["first"] == match["last"] else match[0],
        markdown,
    )


def parse_citations(markdown: str) -> tuple[Citation, ...]:
    """Every citation, in order, each combination of place and quotation once."""
    return tuple(dict.fromkeys(_citation(match, markdown) for match in CITATION_PATTERN.finditer(markdown)))


def _citation(match: re.Match[str], markdown: str) -> Citation:
    return Citation(
        document=match["document"],
        first_line=_line(match["first"]),
        last_line=_line(match["last"]),
        quotation=_quotation_before(match.start(), markdown),
    )


def _line(digits: str) -> int:
    return int(digits) if len(digits) <= _MOST_DIGITS else NO_LINE


def _quotation_before(end: int, markdown: str) -> str | None:
    """What stands between quotation marks, on one line, with no more than white space behind it."""
    span = _quoted_span(end, markdown)
    return None if span is None else markdown[span.start : span.stop]


def _quoted_span(end: int, markdown: str) -> slice | None:
    """Where that stands, without its marks."""
    least = max(0, end - MAX_QUOTATION_DISTANCE)
    closing = markdown[least:end].rpartition("\n")[2].rstrip()
    if not closing.endswith(('"', "”")):
        return None
    before = closing[:-1]
    opening = _opening(before, nests=closing.endswith("”"))
    quoted = len(before) - opening - 1
    if opening < 0 or before[opening] == "”" or not MIN_QUOTATION_CHARACTERS <= quoted <= MAX_QUOTATION_CHARACTERS:
        return None
    line = max(least, markdown.rfind("\n", least, end) + 1)
    return slice(line + opening + 1, line + len(before))


def _opening(before: str, *, nests: bool) -> int:
    """Where the quotation opens: at the nearest mark; what closes with `”` at its own `“`, with whole quotations in it
    or straight marks.
    """
    place = len(before)
    for depth in range(_DEEPEST_QUOTED if nests else 0):
        opening = before.rfind("“", 0, place)
        if opening < 0:
            break
        if before.count("”", opening) == depth:
            return opening
        place = opening
    return max(map(before.rfind, '"“”'))


def _fault(citation: Citation, documents: Mapping[str, CitedDocument]) -> str | None:
    """Why the citation does not hold; None: it does.

    The document exists, has these lines, and a quotation stands in them word for word (white space aside; what
    redaction replaced is taken as it is).
    """
    document = documents.get(citation.document)
    if document is None:
        return "there is no such document"
    if not 1 <= citation.first_line <= citation.last_line <= len(document):
        return f"the document has {len(document)} lines"
    if citation.quotation is None:
        return None
    return document.find_quotation_fault(citation.quotation, citation.first_line, citation.last_line)


def check_citations(
    citations: Iterable[Citation], documents: Mapping[str, CitedDocument]
) -> dict[Citation, str | None]:
    """What is wrong with each, in their order."""
    return {citation: _fault(citation, documents) for citation in citations}


class CorrectionResult(NamedTuple):
    """A text whose quotations say what the documents say, and what still does not hold, marked where it stands."""

    markdown: str
    faults: dict[Citation, str | None]


def correct_quotations(
    markdown: str, faults: Mapping[Citation, str | None], documents: Mapping[str, CitedDocument]
) -> CorrectionResult:
    """A quotation that differs from the cited lines in small things gets their words. `faults`: of each citation."""
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
    """The text without the marks of what does not hold, for who shows or reads citations otherwise."""
    return markdown.replace(FAILED_CITATION_MARK, "")


def _words_of(citation: Citation, reason: str | None, documents: Mapping[str, CitedDocument]) -> str | None:
    if reason not in {QUOTATION_NOT_FOUND, QUOTATION_NOT_FOUND_NEARBY} or citation.quotation is None:
        return None
    document = documents[citation.document]
    words = document.find_original_wording(citation.quotation, citation.first_line, citation.last_line)
    # What is put there must be what the check finds.
    if words is None or document.find_quotation_fault(words, citation.first_line, citation.last_line) is not None:
        return None
    return words


def _between_marks(words: str, markdown: str, span: slice) -> str | None:
    """With the marks that were there, or with those that tell it from marks in it; None: nothing tells it."""
    own = f"{markdown[span.start - 1]}{words}{markdown[span.stop]}"
    return next((one for one in (own, f"“{words}”") if _quotation_before(len(one), one) == words), None)


class _Part(NamedTuple):
    """Words of a quotation, and how many placeholders stand before them."""

    placeholders: int
    words: str


class _Quoted(NamedTuple):
    """A quotation: its words, and the gaps that its placeholders leave between them."""

    parts: Sequence[_Part]
    """The first without placeholders before it, and the last maybe without words; the others have both."""
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
        """Whether its words stand in the text, in their order, with 1 to 400 characters for each placeholder between.

        All at once: a number has a bit for each place of the text where what was looked at so far may end. A search
        from each of these places would try every combination of gaps.
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
    """For each letter a number with a bit for each place where it stands: the lowest is the first."""
    bits = {letter: bytearray(len(text) // 8 + 1) for letter in letters}
    for place, letter in enumerate(text):
        if (of_letter := bits.get(letter)) is not None:
            of_letter[place >> 3] |= 1 << (place & 7)
    return {letter: int.from_bytes(of_letter, "little") for letter, of_letter in bits.items()}


def _spread(places: int, placeholders: int) -> int:
    """Each place moved by all that so many placeholders may stand for."""
    if not placeholders:
        return places
    # Moved by nothing up to `reached`, twice as far each time.
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
"""Around a claim, or between two citations of one."""


class Claim(Value):
    """One sentence of a text, or a quotation of several; on one line, without its citations."""

    text: str
    citations: tuple[Citation, ...] = ()

    @property
    def is_pointer_only(self) -> bool:
        """Whether it has a citation and only names its document: a list of places to look at claims nothing of them."""
        if not self.citations:
            return False
        name = self.citations[0].document
        rest = self.text.strip("*`_ ").removesuffix(name).removesuffix(name.rpartition("/")[2].partition(".")[0])
        return not rest.strip("*`_ ") or rest.rstrip("*`_ ").endswith(":")


def extract_claims(markdown: str) -> tuple[Claim, ...]:
    """Every sentence, in order. What stands before a citation, back to the sentence's beginning, is what it is for;
    headings, rules and lines of nothing but signs are no claims.
    """
    lines = strip_failed_citation_marks(markdown).splitlines()
    return tuple(claim for line in lines if not line.startswith("#") for claim in _claims_of(line))


def _claims_of(line: str) -> Iterator[Claim]:
    bullet = _BULLET.match(line)
    said, end, behind = "", bullet.end() if bullet else 0, list[Citation]()
    for match in CITATION_PATTERN.finditer(line):
        between = line[end : match.start()]
        if behind and between.strip(_NOT_SAID):
            yield from _sentences(said, tuple(behind))
            said, behind = "", []
        if not behind:
            said = between
        behind.append(_citation(match, line))
        end = match.end()
    yield from _sentences(said, tuple(behind))
    yield from _sentences(line[end:], ())


def _sentences(text: str, citations: tuple[Citation, ...]) -> Iterator[Claim]:
    """The last of them has the citations; what ends with a quotation is one claim, since words of others have ends of
    sentences, too.
    """
    text = " ".join(text.split()).lstrip(" .,;:)]–—|")
    whole = text.endswith(('"', "”"))
    *before, last = [text] if whole else [part.strip() for part in _SENTENCE_END.split(text)]
    yield from (Claim(text=part) for part in before if part.strip(_NOT_SAID))
    if last.strip(_NOT_SAID):
        yield Claim(text=last.strip(), citations=citations)
