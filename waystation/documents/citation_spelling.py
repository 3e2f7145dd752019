"""Rewrites citations in the spellings that models use as `[document:first-last]`.

Only what names a document of the task and lines or pages of it is rewritten. Fenced code, Markdown links, addresses,
times and reference brackets stay as they are, and so does every citation that could mean several documents or none.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import cached_property
from itertools import islice
from typing import NamedTuple, TypeVar, final

from waystation.documents import citations as citation_syntax
from waystation.documents.citations import MAX_QUOTATION_CHARACTERS
from waystation.documents.documents import get_plain_place, parse_place_marker
from waystation.kernel.patterns import compile_bounded

MAX_GROUP_CHARACTERS = 1_000
"""Maximum characters of brackets, of parentheses or of a code span that can be a citation."""
MAX_NAME_CHARACTERS = 300
"""Maximum characters before a line number in which the name of its document is looked for."""
MAX_CITED_PAGES = 50
"""Maximum number of pages of one citation."""
_MAX_CANDIDATES = 12
"""Maximum number of places at which one name is assumed to begin or to end."""
_MAX_TARGET_CHARACTERS = 2_000
"""Maximum characters of the target of a link."""

_EXTENSION = compile_bounded(r"\w[.][a-zA-Z][a-zA-Z0-9]{0,7}\Z")
LineRange = tuple[int, int]
"""First and last line, from 1."""
_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


class NameMatch(IntEnum):
    """How a written name matches the name of a document. A weaker match may be an accident in prose."""

    EXACT = 0
    """The same name in any case, Unicode form and kind of slash."""
    PATH = 1
    """One is the end of the other's path."""
    LOOSE = 2
    """The same letters and digits, or the name without its folder and its extension."""


@final
class CitableDocuments:
    """The documents that a text can cite, by the names that its author knows."""

    def __init__(self, lines: Mapping[str, int], places: Mapping[str, Mapping[str, LineRange]] | None = None) -> None:
        """Initialise.

        Args:
            lines: Number of lines of each document.
            places: The lines of pages, slides and so on, as `find_place_lines` returns them, for each document of
                which they are known.
        """
        self.lines = lines
        self.places = places or {}

    def find_name(self, written: str, match: NameMatch) -> str | None:
        """Return the name of the only document that is meant.

        Stronger matches are tried first; None if the first that fits fits several documents, or none fits.
        """
        if written in self.lines:
            return written
        if not (folded := _fold_name(written)):
            return None
        found: Sequence[str] = self._folded.get(folded, ())
        if not found and match >= NameMatch.PATH:
            found = self._find_by_path(folded)
        if not found and match >= NameMatch.LOOSE:
            found = self._letters.get(_keep_letters(folded), ()) or self._stems.get(folded, ())
        return found[0] if len(found) == 1 else None

    def _find_by_path(self, folded: str) -> list[str]:
        parts = _split_path(folded)
        known = self._files.get(parts[-1], ()) if parts else ()
        return [name for name, path in known if parts[-len(path) :] == path or path[-len(parts) :] == parts]

    def is_file_name(self, written: str) -> bool:
        """Whether a name has the extension of one of the documents."""
        return bool(_EXTENSION.search(written)) and _get_extension(written) in self._extensions

    @cached_property
    def _extensions(self) -> frozenset[str]:
        return frozenset(_get_extension(name) for name in self.lines)

    @cached_property
    def _folded(self) -> dict[str, list[str]]:
        return _group_by((_fold_name(name), name) for name in self.lines)

    @cached_property
    def _files(self) -> dict[str, list[tuple[str, list[str]]]]:
        """By file name: the documents with their paths. Addresses of web pages have none."""
        paths = ((name, _split_path(_fold_name(name))) for name in self.lines if "://" not in name)
        return _group_by((path[-1], (name, path)) for name, path in paths if path)

    @cached_property
    def _letters(self) -> dict[str, list[str]]:
        letters = ((_keep_letters(_fold_name(name)), name) for name in self.lines)
        return _group_by((key, name) for key, name in letters if key)

    @cached_property
    def _stems(self) -> dict[str, list[str]]:
        files = ((file.rpartition(".")[0], name) for file, known in self._files.items() for name, _ in known)
        return _group_by((stem, name) for stem, name in files if stem)


def _group_by(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    grouped: dict[_Key, list[_Item]] = {}
    for key, item in pairs:
        grouped.setdefault(key, []).append(item)
    return grouped


def _fold_name(name: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", name).casefold().replace("\\", "/").split())


def _get_extension(name: str) -> str:
    return _fold_name(name).rpartition(".")[2]


def _split_path(folded: str) -> list[str]:
    return [part for part in folded.split("/") if part not in {"", ".", ".."}]


def _keep_letters(folded: str) -> str:
    return "".join(filter(str.isalnum, folded))


def find_place_lines(lines: Sequence[str]) -> dict[str, LineRange]:
    """Return the lines of each page, slide and so on, by its folded place: `page 3`.

    Places without text, and those that occur more than once, are left out.
    """
    markers = [(number, place) for number, line in enumerate(lines, 1) if (place := parse_place_marker(line))]
    ends = [*(number - 1 for number, _ in markers[1:]), len(lines)] if markers else []
    places = [_fold_name(get_plain_place(place)) for _, place in markers]
    found: dict[str, LineRange] = {}
    for (number, _), place, end in zip(markers, places, ends, strict=True):
        last = end
        while last > number and not lines[last - 1].strip():
            last -= 1
        if last > number:
            found[place] = (number + 1, last)
    counts = Counter(places)
    return {place: span for place, span in found.items() if counts[place] == 1}


class NormalisedText(NamedTuple):
    """A text whose citations have one spelling."""

    text: str
    changed: int = 0
    """Number of citations that were spelled differently."""
    unresolved: tuple[str, ...] = ()
    """What looks like a citation and names no lines of one document, as written."""
    unread: frozenset[str] = frozenset()
    """Documents that are cited by a page and whose places are not known: with them, more can be resolved."""


def normalise_citations(markdown: str, citable: CitableDocuments) -> NormalisedText:
    """Rewrite every citation of a text as `[document:first-last]`. Nothing else is changed."""
    normaliser = _Normaliser(citable)
    lines = [line if in_code else normaliser.normalise_line(line) for line, in_code in _iter_lines(markdown)]
    return normaliser.build_result("\n".join(lines))


class NormalisedCitation(NamedTuple):
    """The citations that a string stands for."""

    citations: tuple[str, ...]
    """The string as it was written if it cannot be resolved."""
    is_resolved: bool = True
    unread: frozenset[str] = frozenset()
    """As of `NormalisedText`."""


def normalise_citation_string(written: str, citable: CitableDocuments) -> NormalisedCitation:
    """Rewrite a string that should be nothing but one or several citations."""
    normaliser = _Normaliser(citable)
    cited = normaliser.parse_group(written.strip().removeprefix("[").removesuffix("]"), NameMatch.LOOSE)
    if cited is not None:
        return NormalisedCitation(cited)
    whole = normalise_citations(written, citable)
    found = tuple(match[0] for match in citation_syntax.CITATION_PATTERN.finditer(whole.text))
    if found and not citation_syntax.CITATION_PATTERN.sub("", whole.text).strip(_BETWEEN_CITATIONS):
        return NormalisedCitation(found)
    return NormalisedCitation((whole.text,), is_resolved=bool(found), unread=whole.unread | normaliser.unread)


_BETWEEN_CITATIONS = " ,;.()&`*"
_FENCE = compile_bounded(r"[ \t>]{0,12}+(?:[-*+] {1,4}+)?(?P<sign>`{3,200}+|~{3,200}+)(?P<info>[^\n]*)")


def _iter_lines(markdown: str) -> Iterator[tuple[str, bool]]:
    """Yield each line, and whether it belongs to fenced code. A fence that is never closed reaches to the end."""
    fence = ""
    for line in markdown.split("\n"):
        opening = _FENCE.match(line)
        if fence:
            yield line, True
            if opening and opening["sign"].startswith(fence) and not opening["info"].strip():
                fence = ""
        elif opening and not (opening["sign"][0] == "`" and "`" in opening["info"]):
            yield line, True
            fence = opening["sign"]
        else:
            yield line, False


_DASH = r"[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d~\u301c\uff5e]"
# Longer words first: what a word begins with is not tried again.
_LINE_WORD = r"(?:lines?|lignes?|l[ií]neas?|linhas?|lns?\.?|ll?\.?|zeilen?|zl?\.|righe|riga|regels?|строк[аиу]?|行|第)"
_PAGE_WORD = (
    r"(?:pages?|p[aá]ginas?|pagine|pgs?\.?|pp?\.?|seiten?|s\.|стр\.|с\.|страниц[аы]|ページ|页|頁"
    r"|第(?=\d{1,6}(?:页|頁|ページ)))"
)
_PLACE_WORD = r"(?:slide|sheet|chapter|section)"
_RANGE = (
    rf"(?:(?P<page>{_PAGE_WORD})|(?P<line>{_LINE_WORD})|(?P<place>{_PLACE_WORD}))?+[\s=]{{0,3}}+"
    rf"(?P<first>\d{{1,18}})(?!\d)"
    rf"(?:\s{{0,2}}(?:(?P<colon>:)|{_DASH}{{1,2}}|\.\.\.?|…|\b(?:to|bis|through)\b)\s{{0,2}}"
    rf"(?:{_LINE_WORD}\s?)?(?P<last>\d{{1,18}})(?!\d))?+"
    r"(?:\s?(?:行目?|ページ|页|頁))?+[)）]?+"
)
_LIST_SIGN = r"[,，、;；&+/|]"
_ENDS = rf"(?=\s{{0,3}}(?:{_LIST_SIGN}|(?:and|und|et|y|и)\b|\Z))"
_LOCATOR = compile_bounded(
    rf"(?P<separator>(?:\s{{0,3}}+[:：#†,，、(（]){{1,2}}+\s{{0,3}}+|\s{{1,3}}+){_RANGE}{_ENDS}", re.IGNORECASE
)
"""Lines or pages behind the name of their document."""
_NEXT_RANGE = compile_bounded(
    rf"\s{{0,3}}+(?:{_LIST_SIGN}|(?:and|und|et|y|и)\b)\s{{0,3}}+{_RANGE}{_ENDS}", re.IGNORECASE
)
"""More lines or pages of the same document."""
_NEXT_NAME = compile_bounded(rf"\s{{0,3}}+(?:{_LIST_SIGN}|(?:and|und|et|y|и)\b)?+\s{{0,3}}+", re.IGNORECASE)
_BARE_RANGE = compile_bounded(
    rf"[:：#†](?:l{{1,2}}\.?\s?)?(?P<first>\d{{1,18}})(?!\d)(?:\s?{_DASH}\s?(?:l\.?)?(?P<last>\d{{1,18}})(?!\d))?+"
    rf"(?![^\W_]|\s?{_DASH}\s?\d|-(?![^\W\d_])|[.,:：]\d)",
    re.IGNORECASE,
)
"""Lines behind a name in running text."""
_START = compile_bounded(r"`{1,200}+|[\[【［(（]|\b(?:https?|ftp)://|[:：#†](?=(?:l{1,2}\.?\s?)?\d)", re.IGNORECASE)
"""Where a citation may begin, or behind its name continue, and what has to be skipped."""
_SQUARE = compile_bounded(rf"[\[【［](?P<inside>[^\[\]【】［］\n]{{1,{MAX_GROUP_CHARACTERS}}}+)[\]】］]")
_CITED = compile_bounded(r"\s{0,20}[\[【［]")
"""What follows a quotation that has its own citation."""
_ROUND = compile_bounded(rf"[(（](?P<inside>(?:[^()（）\n]|\([^()\n]{{0,200}}+\)){{1,{MAX_GROUP_CHARACTERS}}}+)[)）]")
_ADDRESS = compile_bounded(rf"[^\s<>\])}}\"'|]{{1,{_MAX_TARGET_CHARACTERS}}}+")
_NAME_BEGINS_AFTER = frozenset(" \t([{\"'“”„«»‚‘’*>|,;—–=（【［「、，")
_LEAD_IN = compile_bounded(
    r"(?:see(?: also)?|cf\.?|sources?|refs?\.?|siehe|vgl\.?|quellen?|voir|v[eé]ase|см\.?|источник|出典|来源)"
    r"(?::|\s)\s?",
    re.IGNORECASE,
)
"""What may stand before the name within square brackets."""
_AROUND_NAMES = " \t`*_\"'“”„«»‚‘’,"


class _CitedRange(NamedTuple):
    """One line or page range of a document, as written."""

    document: str
    kind: str
    """`line`, or the first word of its place marker."""
    first: int
    last: int
    has_word: bool
    """Whether it says that it means lines or pages."""


class _Normaliser:
    """Rewrites the citations of a text, line by line, and notes what cannot be resolved."""

    def __init__(self, citable: CitableDocuments) -> None:
        self._citable = citable
        self._changed = 0
        self._unresolved: dict[str, None] = {}
        self.unread: set[str] = set()

    def build_result(self, text: str) -> NormalisedText:
        return NormalisedText(text, self._changed, tuple(self._unresolved), frozenset(self.unread))

    def normalise_line(self, line: str) -> str:
        """Return the line with its citations rewritten, from left to right."""
        out, copied, passed, place = list[str](), 0, 0, 0
        spans = _Spans(line)
        while start := _START.search(line, place):
            step = self._step(line, start, passed, spans)
            place = step.end
            if step.cited is not None:
                written, text = line[step.begin : step.end], " ".join(step.cited)
                self._changed += written != text
                # Directly before a parenthesis it would be the text of a link.
                out += line[copied : step.begin], text, " " if line.startswith("(", step.end) else ""
                copied = step.end
            if step.cited is not None or step.is_closed:
                passed = step.end
        return "".join([*out, line[copied:]])

    def _step(self, line: str, start: re.Match[str], passed: int, spans: "_Spans") -> "_Step":
        at, sign = start.start(), start[0]
        if sign in "[【［":
            return self._quoted_square(line, at, spans) or self._square(line, at)
        if spans.is_quoted(at):
            # A document's own words: a quotation stays word for word.
            return _Step(at, start.end())
        if sign[0] == "`":
            return self._code_span(line, start, spans)
        if sign.endswith("://"):
            address = _ADDRESS.match(line, at)
            return _Step(at, address.end() if address else start.end(), is_closed=True)
        if sign in "(（":
            return self._round(line, at)
        return self._bare(line, start, passed)

    def _code_span(self, line: str, start: re.Match[str], spans: "_Spans") -> "_Step":
        close = spans.find_closing(start)
        if close is None:
            return _Step(start.start(), start.end())
        inside = line[start.end() : close].strip()
        whole = inside.removeprefix("[").removesuffix("]") if inside.startswith("[") else inside
        return _Step(start.start(), close + len(start[0]), self.parse_group(whole, NameMatch.PATH), is_closed=True)

    def _quoted_square(self, line: str, at: int, spans: "_Spans") -> "_Step | None":
        """Return the step over a citation in a quotation that has its own citation: a document's words, not ours.

        It gets round brackets. None if it is something else.
        """
        end, group = spans.find_quotation_end(at), _SQUARE.match(line, at)
        if end is None or group is None or group.end() >= end or not _CITED.match(line, end):
            return None
        looks_cited = citation_syntax.CITATION_PATTERN.fullmatch(group[0]) is not None
        if not looks_cited and self.parse_group(group["inside"], NameMatch.LOOSE) is None:
            return None
        return _Step(at, group.end(), (f"({group['inside']})",), is_closed=True)

    def _square(self, line: str, at: int) -> "_Step":
        group = _SQUARE.match(line, at)
        if group is None:
            return _Step(at, at + 1)
        end = group.end()
        if line.startswith("(", end) and line[at] == "[":
            close = line.find(")", end, end + _MAX_TARGET_CHARACTERS) + 1 or end
            written = None if citation_syntax.CITATION_PATTERN.fullmatch(group[0]) else group["inside"]
            if written is not None and self.parse_group(written, NameMatch.LOOSE) is not None:
                self._unresolved[line[at:close]] = None
            return _Step(at, close, is_closed=True)
        if line.startswith(":", end) and not line[:at].strip():
            return _Step(at, end, is_closed=True)
        if self._is_canonical(group[0]):
            return _Step(at, end, is_closed=True)
        inside = group["inside"]
        lead_in = _LEAD_IN.match(inside)
        cited = self.parse_group(inside, NameMatch.LOOSE)
        if cited is None and lead_in:
            cited = self.parse_group(inside[lead_in.end() :], NameMatch.LOOSE)
        if cited is None and self._is_unresolved(group[0], inside):
            self._unresolved[group[0]] = None
            return _Step(at, end, is_closed=True)
        return _Step(at, at + 1 if cited is None else end, cited)

    def _round(self, line: str, at: int) -> "_Step":
        if line[at - 1 : at] == "]":
            close = line.find(")", at, at + _MAX_TARGET_CHARACTERS)
            return _Step(at, close + 1 or at + 1, is_closed=close >= 0)
        group = _ROUND.match(line, at)
        cited = self.parse_group(group["inside"], NameMatch.PATH) if group else None
        if group is None or cited is None:
            return _Step(at, at + 1)
        return _Step(at, group.end(), cited)

    def _bare(self, line: str, start: re.Match[str], passed: int) -> "_Step":
        at = start.start()
        found = _BARE_RANGE.match(line, at)
        begin = self._find_name_before(line, max(passed, at - MAX_NAME_CHARACTERS), at) if found else None
        if found is None or begin is None:
            return _Step(at, start.end())
        first = int(found["first"])
        cited = _format(begin[1], first, int(found["last"] or first))
        return _Step(at, found.end()) if cited is None else _Step(begin[0], found.end(), (cited,))

    def _find_name_before(self, line: str, least: int, end: int) -> tuple[int, str] | None:
        """Return where the name of a document begins that ends here, and the document's name."""
        starts = [
            place
            for place in range(end - 1, least - 1, -1)
            if line[place] not in _NAME_BEGINS_AFTER and (place == least or line[place - 1] in _NAME_BEGINS_AFTER)
        ][:_MAX_CANDIDATES]
        named = [(place, line[place:end]) for place in reversed(starts)]
        for place, written in named:
            known = self._citable.find_name(written, NameMatch.EXACT) if "." in written else None
            if known is not None:
                return place, known
        for place, written in reversed(named):
            known = self._citable.find_name(written, NameMatch.PATH) if "." in written and " " not in written else None
            if known is not None:
                return place, known
        return None

    def _is_canonical(self, group: str) -> bool:
        match = citation_syntax.CITATION_PATTERN.fullmatch(group)
        return match is not None and match["document"] in self._citable.lines and match["first"].isascii()

    def _is_unresolved(self, group: str, inside: str) -> bool:
        """Whether this looks like a citation, and the check of citations would not see it."""
        if citation_syntax.CITATION_PATTERN.fullmatch(group):
            return False
        named = (inside[: found.start()] for found in islice(_LOCATOR.finditer(inside), _MAX_CANDIDATES))
        return any(self._citable.is_file_name(name.strip(_AROUND_NAMES)) for name in named)

    def parse_group(self, inside: str, match: NameMatch) -> tuple[str, ...] | None:
        """Return the citations that brackets, parentheses or a code span consist of; None if it has anything else."""
        text = inside.strip(" \t`")
        while len(text) > 1 and text[0] == text[-1] and text[0] in "*_\"'":
            text = text[1:-1]
        if not text or len(text) > MAX_GROUP_CHARACTERS or "[" in text or "]" in text or "\n" in text:
            return None
        ranges = self._parse_ranges(text, match)
        return None if ranges is None else self._resolve(ranges)

    def _parse_ranges(self, text: str, match: NameMatch) -> list[_CitedRange] | None:
        ranges, place = list[_CitedRange](), 0
        while place < len(text):
            more = _NEXT_RANGE.match(text, place) if ranges else None
            if more is not None:
                found = self._range(ranges[-1].document, more, ranges[-1].kind)
                if not found.has_word and found.kind == "line" and not self._is_within(found):
                    return None
                end = more.end()
            else:
                gap = _NEXT_NAME.match(text, place)
                named = self._find_named_range(text, gap.end() if gap else place, match)
                if named is None:
                    return None
                found, end = named
            ranges.append(found)
            place = end
        return ranges

    def _find_named_range(self, text: str, place: int, match: NameMatch) -> tuple[_CitedRange, int] | None:
        """Return the first range with the name of its document before it, and where it ends.

        Names may contain numbers and colons, so every range may be the one; those behind an exact name come first.
        """
        found = [*islice(_LOCATOR.finditer(text, place), _MAX_CANDIDATES)]
        for strength in range(match + 1):
            for one in found:
                written = text[place : one.start()].strip()
                if written not in self._citable.lines:
                    written = written.strip(_AROUND_NAMES)
                document = self._citable.find_name(written, NameMatch(strength))
                if document is None:
                    continue
                cited = self._range(document, one, "line")
                strong = cited.has_word or one["separator"].strip(" \t,，、")
                exact = strength < NameMatch.LOOSE and match is NameMatch.LOOSE
                if strong or (exact and not one["colon"] and self._is_within(cited)):
                    return cited, one.end()
        return None

    def _is_within(self, cited: _CitedRange) -> bool:
        return 1 <= cited.first <= cited.last <= self._citable.lines[cited.document]

    @staticmethod
    def _range(document: str, found: re.Match[str], kind: str) -> _CitedRange:
        first = int(found["first"])
        word = found["page"] or found["place"] or found["line"]
        if found["page"]:
            kind = "page"
        elif found["place"]:
            kind = found["place"].casefold()
        elif found["line"]:
            kind = "line"
        return _CitedRange(document, kind, first, int(found["last"] or first), bool(word))

    def _resolve(self, ranges: Sequence[_CitedRange]) -> tuple[str, ...] | None:
        resolved: list[str] = []
        for number, cited in enumerate(ranges):
            span = (cited.first, cited.last) if cited.kind == "line" else self._find_lines_of_place(cited)
            if span is None:
                return None
            following = ranges[number + 1] if number + 1 < len(ranges) else None
            if cited.kind != "line" and following and following.kind == "line" and following.has_word:
                # A page and lines on it: the lines are those of the whole document, or else it is not clear which.
                if following.document != cited.document or not span[0] <= following.first <= following.last <= span[1]:
                    return None
                continue
            written = _format(cited.document, *span)
            if written is None:
                return None
            resolved.append(written)
        return tuple(dict.fromkeys(resolved))

    def _find_lines_of_place(self, cited: _CitedRange) -> LineRange | None:
        places = self._citable.places.get(cited.document)
        if places is None:
            self.unread.add(cited.document)
            return None
        if not 0 <= cited.last - cited.first < MAX_CITED_PAGES:
            return None
        spans = [places.get(f"{cited.kind} {number}") for number in range(cited.first, cited.last + 1)]
        known = [span for span in spans if span is not None]
        return (known[0][0], known[-1][1]) if len(known) == len(spans) else None


class _Step(NamedTuple):
    """A part of a line that was looked at, and the citations that it is replaced by."""

    begin: int
    end: int
    cited: tuple[str, ...] | None = None
    is_closed: bool = False
    """Whether no citation can begin within it."""


@final
class _Spans:
    """The code spans and the quotations of a line."""

    def __init__(self, line: str) -> None:
        self._line = line

    def find_closing(self, opening: re.Match[str]) -> int | None:
        """Return where the run of backticks begins that closes this one."""
        starts = self._starts.get(len(opening[0]), [])
        following = bisect_left(starts, opening.end())
        return starts[following] if following < len(starts) else None

    def is_quoted(self, place: int) -> bool:
        """Whether this is between quotation marks."""
        return self.find_quotation_end(place) is not None

    def find_quotation_end(self, place: int) -> int | None:
        """Return where the quotation ends that this is in, with its mark; None if it is in none."""
        before = bisect_left(self._quotations, (place,)) - 1
        return self._quotations[before][1] if before >= 0 and place < self._quotations[before][1] else None

    @cached_property
    def _quotations(self) -> list[tuple[int, int]]:
        found, end = list[tuple[int, int]](), 0
        while opening := _OPENING_MARK.search(self._line, end):
            least, most = opening.end(), opening.end() + MAX_QUOTATION_CHARACTERS
            closing = (self._line.find(mark, least, most) for mark in _CLOSING_MARKS[opening[0]])
            end = min((place for place in closing if place >= 0), default=-1) + 1 or least
            if end > least:
                found.append((opening.start(), end))
        return found

    @cached_property
    def _starts(self) -> dict[int, list[int]]:
        return _group_by((run.end() - run.start(), run.start()) for run in _TICKS.finditer(self._line))


_OPENING_MARK = compile_bounded(r"(?<![^\s(\[{*_>|:,;—–])\"(?=\S)|[“„«「『]")
_CLOSING_MARKS = {'"': '"', "“": "”", "„": "“”", "«": "»", "「": "」", "『": "』"}
_TICKS = compile_bounded(r"`{1,200}+")


def _format(document: str, first: int, last: int) -> str | None:
    """Return the citation; None for lines that cannot be, and for a name that a citation cannot have."""
    if not 1 <= first <= last or "[" in document or "]" in document or "\n" in document:
        return None
    return f"[{document}:{first}-{last}]"
