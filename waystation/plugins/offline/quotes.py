"""Quotations: splits numbered lines into sentences and header lines, and selects those most relevant to a goal.

Also parses and formats citations, search hits, document lines and notes.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice, pairwise, zip_longest

from waystation.documents.documents import parse_place_marker
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.plugins.offline.agent_request import ToolCallRecord
from waystation.plugins.offline.language import (
    STOP_WORDS,
    QueryTerm,
    apply_idf_weights,
    build_stem_set,
    compute_stem,
    extract_stems,
    find_sentence_spans,
    iter_words,
    split_sentences,
    truncate_at_word,
)
from waystation.reports.blocks import AMBIGUOUS_FILE_STEMS

QUOTE_CHARACTERS = 1_000
"""Maximum characters of a quotation; a longer sentence is cut."""
MAX_QUOTES = 2
LACKING = 0.5
"""Factor for a quotation without the requested figure."""
TOGETHER = 1.0
"""Score of two terms whose words are adjacent in question and text: "total assets"."""
TORN = 0.5
"""Factor for a long quotation that begins or ends within a sentence, as at the end of a page."""
IN_PART = 0.9
LONG = 80
WRAPPED = 0.75
"""Share of the longest line's length: if the next word would have fitted below it, a line was ended on purpose."""
SECOND_BEST = 0.5
"""Minimum score of a second quotation, as a share of the first; it must also say something new."""

DIRECT_WORDS = 6
"""A header line with at most this number of words says no more than its key and what it shows of the question."""

NAMED_SHARE = 0.5
"""Minimum share of a key's words that name the term for its line to be an answer."""

MIN_WORDS = 3
"""Fewer words are a heading or a fragment, unless they are a header line."""

_HEADER = compile_bounded(r"^\s*(?:[-*+•] )?([A-Za-z][\w .-]{1,39}?)\s*:\s+(\S.*)$")
_OWN_LINE = compile_bounded(r"^\s*(?:[-*+•] |\d+[.)] |#|>|\||```|\.\. )")
_BULLET = compile_bounded(r"^\s*(?:[-*+•] |\d+[.)] |#+ |> )\s*")
_RULE = compile_bounded(r"^\s*([=~^*+#\-_.])\1{2,}\s*$")
_MARKUP = compile_bounded(r"^\s*(?:!?\[!|\[[^\]]*\]:|<|\.\.|>>>|\||,)|\w::\s|::$")
_SYMBOL = compile_bounded(r"[^\w\s.,;:'’!?|$€£%-]")
MAX_SYMBOL_SHARE = 0.1
"""Maximum share of symbols in a quotation: above it, it is code or markup."""
MAX_IDENTIFIER_SHARE = 0.5
_URL = compile_bounded(r"https?://\S+")
_POINTERS = frozenset({"file", "url", "urls", "link", "links", "dynamic"})
"""A header line with these keys only points to where something is said."""
_OF_ENVELOPES = (
    "from to cc bcc date sent received subject reply message id content type transfer encoding mime metadata"
)
_ENVELOPE = frozenset(_OF_ENVELOPES.split())
"""A header line with these keys describes the file or mail: it is an answer only if the question has the word
itself.
"""
_FIGURE = compile_bounded(r"^[$€£(+-]{0,3}\d[\d.,]{0,20}(?<![.,])[)%]{0,2}$")
_PART = compile_bounded(r"(?:item|part|note|section|chapter|appendix)\b", re.IGNORECASE)
_PAGE = compile_bounded(r"[| ]\d{1,3}\Z")
"""Page number at the end of a line of a table of contents."""
MANY_CELLS = 3
_FIGURE_CELL = compile_bounded(
    r"^(?:[A-Z]{1,3}\b)?\W{0,5}\d[\d.,' ]{0,20}\W{0,4}(?:[KMBkmx]|bn|mn|pp|bps|pts|million|billion|thousand)?\W{0,2}$"
)
_IN_MARKS = compile_bounded(r'"[^"]*+"')
_ALONE_WITH_NUMBER = compile_bounded(r"^(?:[^.!?:]{1,80} \d{1,4}|\d{1,4} [^.!?:]{1,80})$")
"""Page header or footer: between blank lines, or at the end or the beginning of a page."""
_PAGE_NUMBER = compile_bounded(
    r"^\W{0,3}(?:(?:page|seite|p\.) ?)?(?:[A-Z]-)?\d{1,4}(?: ?(?:of|/|von) ?\d{1,4})?\W{0,3}$", re.IGNORECASE
)
_PARTIAL = compile_bounded(r"[%]| [—–] ")
"""Marks of a table row with percentages, or without a value in a column: the row of the total says more."""
_OF_SHARES = frozenset(
    map(compute_stem, ("percent", "percentage", "rate", "margin", "share", "ratio", "growth", "change"))
)
_COLUMN_SIGNS = frozenset("$€£%()—–-|")
_OPEN = "of the and or for to in a an by with und der die das von et de la y"
_OPEN_WORDS = frozenset(_OPEN.split())
_OPEN_SIGNS, _CLOSING_SIGNS = (*",;(&/–-",), (*".!?:;…。！？)]'’*_`",)
_JSON_SIGNS = ("{", "[", '"')
_JSON_LINE = compile_bounded(r'^\s*(?:[\[\]{}]|"[^"\\]{1,80}"\s*:)')
_MEMBER = compile_bounded(
    r'"(?P<key>[^"\\\n]{1,80})"\s{0,9}:\s{0,9}(?:"(?P<words>(?:[^"\\]|\\.)*+)"|(?P<value>-?\d[\d.eE+-]{0,40}|true|false))'
)
_AFTER_QUOTATION = ")],;. \n"
_QUOTE_MARKS = compile_bounded(r"[\"“”„«»]")

_Line = tuple[int, str]


class Quote(Value):
    """A passage of one document, verbatim except for white space, with its line range."""

    text: str
    first_line: int
    last_line: int
    key: str = ""
    """In JSON, the key of the value; in a table row, the headings of its columns."""

    @property
    def sentence(self) -> str:
        """The words with their key; a table row names its subject itself."""
        return (
            strip_column_headings(self.note_text)
            if _CELL_SIGN in self.note_text
            else f"{self.key}: {self.text}".removeprefix(": ")
        )

    @property
    def note_text(self) -> str:
        """The text for a note: quotation marks separate the key, which is elsewhere in the document, from the words."""
        return f'{self.key}: "{self.text}"' if self.key else self.text


class _Scored(Value):
    quote: Quote
    score: float
    matched: frozenset[str]
    unlike_prose: bool


def select_best_quotes(lines: Sequence[_Line], looked_for: Sequence[QueryTerm], several: int = 0) -> tuple[Quote, ...]:
    """Return the quotations most relevant to the terms, best first.

    At least one if there is any text: a document that was read leaves a trace. Questions answer nothing; they, code and
    header lines are quoted only if nothing else is as relevant.

    Args:
        lines: Numbered lines of the document.
        looked_for: The terms.
        several: Maximum number of quotations, which may say the same about different things, as table rows do.
    """
    candidates = [
        one
        for one in _quotes(lines)
        if parse_header_line(one.sentence)[0] or split_row_cells(one.sentence) or _has_words(one.text)
    ]
    code = _code(lines) | _feet(lines)
    scored = sorted(_scored(candidates, looked_for, code), key=lambda item: (-item.score, item.unlike_prose))
    if not scored:
        return ()
    chosen = [scored[0]]
    for item in scored[1:]:
        said = frozenset[str]().union(*(before.matched for before in chosen))
        if (
            len(chosen) < (several or MAX_QUOTES)
            and item.score >= SECOND_BEST * scored[0].score > 0
            and (several or item.matched - said)
        ):
            chosen.append(item)
    return tuple(item.quote for item in chosen)


def score_quotation(text: str, looked_for: Sequence[QueryTerm]) -> float:
    """Score how directly a quotation addresses the terms: the number of concepts it shows (further words of the same
    concept add a quarter each), and its form.
    """
    noted, text = text, strip_column_headings(text)
    present, said = build_stem_set(text), extract_stems(text)
    headed = present | {shown for shown in build_stem_set(noted) if shown.strip("0")}
    telling = [concept for concept in looked_for if concept.words and not concept.aside]
    named = _named(parse_header_line(text)[0], looked_for) >= NAMED_SHARE
    if telling and not named and all(concept.stems.isdisjoint(headed) for concept in telling):
        return 0.0
    pairs = [*pairwise(said)]
    together = sum(
        TOGETHER * min(one.weight, other.weight) * (not (one.aside and other.aside))
        for one, other in pairwise(looked_for)
        if any(first in one.stems and second in other.stems for first, second in pairs)
    )
    lacks = not all(concept.words for concept in looked_for) and not _has_figure(text, looked_for)
    shown = sum(_strength(concept, headed) for concept in looked_for) + together
    return shown * (LACKING if lacks else 1) * _form(text, looked_for) * _of_period(noted, looked_for)


def _of_period(noted: str, looked_for: Sequence[QueryTerm]) -> float:
    """Return the factor for the headings of a row: those of the requested year count more than those of another, or of
    parts of a whole.
    """
    headings, mark, row = noted.partition(': "')
    if not mark or not split_row_cells(row.removesuffix('"')):
        return 1.0
    asked = frozenset[str]().union(*(concept.stems for concept in looked_for if concept.aside))
    of_columns = headings.rpartition("; ")[2]
    years = {*_YEARS.findall(of_columns)} if _CELL_SIGN in of_columns or len(split_row_cells(row)) == 2 else None
    if not years or not any(map(_A_YEAR.match, asked)):
        return 1.0 if years else PARTED
    return OF_YEAR if years & asked else 1.0 if "fiscal" in asked else OF_OTHER_YEAR


PARTED, OF_YEAR, OF_OTHER_YEAR, ALL_SHARES = 0.9, 1.05, 0.8, 0.5


def strip_column_headings(noted: str) -> str:
    """Return the row of a note that has it with the headings of its columns."""
    key, headed, row = noted.removesuffix('"').partition(': "')
    if headed and split_row_cells(row):
        return row
    return f"{key.partition(_CELL_SIGN)[0]}{_CELL_SIGN}{row}" if headed and _CELL_SIGN in key else noted


def extract_entry_value(text: str, looked_for: Sequence[QueryTerm]) -> str:
    """Return what a header line says about its key; empty if that is not looked for, or the text is no header line."""
    key, value = parse_header_line(text)
    return value if _named(key, looked_for) >= NAMED_SHARE else ""


def parse_header_line(text: str) -> tuple[str, str]:
    """Return key and value of a header line such as `License: MIT` (all but the last `::` part are key); else `("",
    text)`.
    """
    match = _HEADER.match(text)
    if match is None:
        return "", text
    path, separator, value = match.group(2).rpartition(" :: ")
    return (f"{match.group(1)} {path}", value) if separator else (match.group(1), match.group(2))


def _has_words(text: str) -> bool:
    return len(list(islice(iter_words(text), MIN_WORDS))) == MIN_WORDS


def _strength(concept: QueryTerm, present: Set[str]) -> float:
    found = len(concept.stems & present)
    return concept.weight * (0.75 + 0.25 * found) if found else 0.0


def _scored(candidates: Sequence[Quote], looked_for: Sequence[QueryTerm], code: Set[int]) -> Iterator[_Scored]:
    rare = apply_idf_weights(looked_for, [quote.sentence for quote in candidates])
    wanted = frozenset[str]().union(*(concept.stems for concept in looked_for))
    for quote in candidates:
        asks = quote.text.rstrip("*_ ").endswith(("?", "？"))
        answers = not asks and quote.first_line not in code
        yield _Scored(
            quote=quote,
            score=score_quotation(
                quote.note_text if quote.key and split_row_cells(quote.sentence) else quote.sentence, rare
            )
            if answers
            else 0.0,
            matched=wanted & build_stem_set(quote.sentence),
            unlike_prose=not answers or bool(parse_header_line(quote.sentence)[0]),
        )


def _named(key: str, looked_for: Sequence[QueryTerm]) -> float:
    """Return the share of a key's words, before its qualifiers, that name a term; for an envelope key only in the
    question's own words.
    """
    keys = list(iter_words(key.partition(" :: ")[0]))
    own = _ENVELOPE.issuperset(keys)
    wanted = {
        known for concept in looked_for for known in ([*map(compute_stem, concept.words[:1])] if own else concept.stems)
    }
    return sum(compute_stem(word) in wanted for word in keys) / max(1, len(keys))


def _form(text: str, looked_for: Sequence[QueryTerm]) -> float:
    """Return the factor for the form of a line: header lines that name a term count most, those of something else
    nothing, markup and links little.
    """
    key, value = parse_header_line(text)
    named = _named(key, looked_for)
    wanted = frozenset[str]().union(*(concept.stems for concept in looked_for))
    keys, said = list(iter_words(key)), list(iter_words(value))
    own = [word for word in said if word not in _POINTERS and compute_stem(word) not in wanted]
    short = len(own) <= DIRECT_WORDS and not (named and _has_figure(value, looked_for))
    row = [] if key else split_row_cells(text)
    factor = 1 / (1 + len(row[0] if row else text) / 400)
    if named >= NAMED_SHARE:
        factor *= 1 + 2 * named
    elif row:
        factor *= IN_PART if _PARTIAL.search(text) else 1
        factor *= ALL_SHARES if all("%" in cell for cell in row[1:] if cell) and not wanted & _OF_SHARES else 1
        label_words = [word for word in iter_words(row[0]) if word not in STOP_WORDS]
        factor *= 1 + 2 * sum(compute_stem(word) in wanted for word in label_words) / max(1, len(label_words))
    elif key and (_ENVELOPE.issuperset(keys) or (short and ("::" in key or len(own) == len(said)))):
        return 0.0
    if not own or not _POINTERS.isdisjoint(keys):
        factor *= 0.2
    plain = _URL.sub("", text)
    named_things = sum(len(word) for word in plain.split() if _is_identifier(word.strip(".,;:!?()[]*'")))
    symbols = len(_SYMBOL.findall(plain)) > len(plain) * MAX_SYMBOL_SHARE
    if len(text) > LONG and not (key or row) and (text[0].islower() or not text.endswith(_CLOSING_SIGNS)):
        factor *= TORN
    if not row and (_MARKUP.search(text) or symbols or named_things > len(plain) * MAX_IDENTIFIER_SHARE):
        factor *= 0.2
    return factor


def _has_figure(text: str, looked_for: Sequence[QueryTerm]) -> bool:
    """Return whether it has the requested figure; False if none is requested."""
    present = build_stem_set(text)
    return any(not concept.words and not concept.stems.isdisjoint(present) for concept in looked_for)


def _is_identifier(word: str) -> bool:
    """Return whether a word is a code identifier; False within backticks, as in sentences."""
    return "`" not in word and (not {"_", "=", "("}.isdisjoint(word) or word.partition(".")[2][:1].isalpha())


def _code(lines: Sequence[_Line]) -> frozenset[int]:
    """Return the lines between code fences."""
    inside, code = False, set[int]()
    for number, line in lines:
        fence = line.lstrip().startswith(("```", "~~~"))
        inside ^= fence
        if inside or fence:
            code.add(number)
    return frozenset(code)


def _quotes(lines: Sequence[_Line]) -> Iterator[Quote]:
    for paragraph in _paragraphs(lines):
        text = "\n".join(line for _, line in paragraph)
        starts = _line_starts(paragraph)
        members = list(_MEMBER.finditer(text)) if text.lstrip().startswith(_JSON_SIGNS) else []
        for member in members:
            kept = max(_QUOTE_MARKS.split(member["words"] or member["value"]), key=len).strip(" \\")
            line = _line_at(starts, member.start())
            for sentence in split_sentences(kept):
                yield Quote(text=sentence[:QUOTE_CHARACTERS], first_line=line, last_line=line, key=member["key"])
        row = split_row_cells(text) if len(paragraph) == 1 else []
        if row:
            yield from _row_quotes(row, paragraph[0], lines)
        for start, end in () if members or row else find_sentence_spans(text):
            yield from _pieces(text, start, end, starts)


def _row_quotes(row: Sequence[str], at: _Line, lines: Sequence[_Line]) -> Iterator[Quote]:
    """Yield the quotes of a row, without the repeats of a wide cell.

    For CSV with quotation marks, which no quotation may have, each figure, with label and heading as its key.
    """
    number, line = at
    headings = _headings(line, [above for above in lines if above[0] < number][-MAX_LINES_ABOVE:])
    if '"' in line:
        for figure, heading in zip_longest(filter(_FIGURE_CELL.match, row[1:]), headings, fillvalue=""):
            key = _CELL_SIGN.join(filter(None, [row[0], heading]))
            if figure:
                yield Quote(text=figure, first_line=number, last_line=number, key=key)
        return
    cells = _EDGE.sub("", line).split(_CELL_SIGN)
    first = max((at for at in range(1, len(cells)) if {*cells[: at + 1]} == {cells[0]}), default=0)
    text = " ".join(_CELL_SIGN.join(cells[first:]).split())
    yield Quote(text=text[:QUOTE_CHARACTERS], first_line=number, last_line=number, key=_CELL_SIGN.join(headings))


def _headings(row: str, above: Sequence[_Line]) -> list[str]:
    """Return the texts above the figures of a row, the table's nearest lines first, after the period that a line above
    names for all of them.

    In plain text, a line with as many years.
    """
    cells = _parted(row)
    columns = [at for at, cell in enumerate(cells) if at and cell.strip("-—–") and cell != cells[0]]
    count, period, headings = len(columns) or len(split_row_cells(row)) - 1, "", list[str]()
    for number, line in reversed(above):
        others = _parted(line)
        if not cells and len(years := _YEARS.findall(line)) == count:
            return years
        if cells and (not others or number < above[-1][0] - MAX_LINES_ABOVE):
            break
        own = [others[at] if at < len(others) else "" for at in columns]
        if others and split_row_cells(line):
            if headings:
                break
        elif all(own):
            headings = [" ".join(dict.fromkeys(pair)) for pair in zip(own, headings or own, strict=True)]
        elif headings or (not period and not any(others[1:])):
            period = period or (line.strip(" |") if not any(others[1:]) and _YEARS.search(line) else "")
    return [f"{period}; {headings[0]}", *headings[1:]] if period and headings else headings or [period][: bool(period)]


def _pieces(text: str, start: int, end: int, starts: Sequence[tuple[int, int]]) -> Iterator[Quote]:
    """Yield a sentence without its bullet; for one with a quotation in it, its longest part without quotation marks."""
    bullet = _BULLET.match(text[start:end]) if start == 0 else None
    begin = start + (bullet.end() if bullet else 0)
    sentence = truncate_at_word(text[begin:end], QUOTE_CHARACTERS)
    first, *others = _QUOTE_MARKS.split(sentence)
    # Signs after a quotation belong to it, not to the next part: `("Kenvue"), pursuant to which`.
    part = max([first, *(other.lstrip(_AFTER_QUOTATION) for other in others)], key=len)
    if kept := part.strip():
        at = begin + sentence.index(part) + len(part) - len(part.lstrip())
        yield Quote(
            text=" ".join(kept.split()),
            first_line=_line_at(starts, at),
            last_line=_line_at(starts, at + len(kept) - 1),
        )


def _paragraphs(lines: Sequence[_Line]) -> Iterator[list[_Line]]:
    """Yield lines that belong together: running text, one bullet, or one header line. Headings are left out."""
    paragraph: list[_Line] = []
    previous = 0
    widest = max((len(line) for _, line in lines), default=0)
    for number, line in lines:
        if _RULE.match(line):
            # The line above is its heading.
            paragraph = paragraph[:-1]
        alone = bool(_HEADER.match(line) or _JSON_LINE.match(line))
        ends = alone or _says_nothing(line) or _OWN_LINE.match(line) or number != previous + 1
        if paragraph and (ends or _begins_anew(paragraph[-1][1], line, widest)):
            yield paragraph
            paragraph = []
        previous = number
        if _says_nothing(line) or line.lstrip().startswith(("#", "```")):
            continue
        paragraph.append((number, line))
        if alone or line.lstrip().startswith(("|", ">")):
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def _begins_anew(above: str, line: str, widest: int) -> bool:
    """Return whether a line does not continue the one above: one of them is a heading or a table row."""
    begin = line.lstrip()
    end = above.rstrip()
    if begin[:1].islower() or end.endswith(_OPEN_SIGNS) or end.rpartition(" ")[2] in _OPEN_WORDS:
        return False
    next_word = begin.split(None, 1)[0]
    fits = len(above) + 1 + len(next_word) <= WRAPPED * widest
    return fits or bool(split_row_cells(above) or split_row_cells(begin))


def split_row_cells(line: str) -> list[str]:
    """Return the cells of a row that has figures, with its label first; empty for any other line.

    In plain text a row is a label followed by at least two figures; if cells have separators, one is enough.
    """
    cells = _cells(line)
    said = [cell for cell in cells[1:] if cell.strip("-—–")]
    figures = sum(_FIGURE_CELL.match(cell) is not None for cell in said)
    if 2 * figures > len(said) and not all(map(_A_YEAR.match, said)):
        return cells
    *label, last, other = ["", "", "", *(part for part in line.split() if part not in _COLUMN_SIGNS)]
    of_text = not cells and any(label) and line.lstrip()[0].isalpha() and all(map(_FIGURE.match, (last, other)))
    figures_at = next(at for at, part in enumerate([*label, last]) if _FIGURE.match(part)) if of_text else 0
    return [" ".join(label[:figures_at]).strip(), *label[figures_at:], last, other] if of_text else []


def _cells(line: str) -> list[str]:
    """Return the cells of a table line, without repeats of the one before, as wide cells have."""
    cells = _parted(line)
    while cells and not _LETTER.search(cells[0]):
        del cells[0]
    return [cell for at, cell in enumerate(cells) if not at or cell != cells[at - 1] or _FIGURE_CELL.match(cell)]


def _parted(line: str) -> list[str]:
    """Return all cells of a table line; of CSV only if it has figures or years."""
    if (cells := f"{line} ".split(" | " if not line.startswith("|") else "|"))[1:]:
        return [cell.strip(" |") for cell in cells]
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    if "," not in line or ", " in _IN_MARKS.sub("", line):
        return []
    cells = [cell.strip() for cell in next(csv.reader([line[:MAX_CSV_CHARACTERS]]))]
    return [] if cells[0][-1:].isdigit() else cells


_EDGE = compile_bounded(r"^\|(?= *[^ |])|\|\s*$")
_CELL_SIGN = " | "
_YEARS = compile_bounded(r"(?<![\d,.$])(?:19|20)\d\d(?![\d,.]\d)")
_LETTER, _A_YEAR = compile_bounded(r"[^\W\d_]"), compile_bounded(r"^(?:19|20)\d\d$")
MAX_CSV_CHARACTERS = 100_000
"""Maximum characters of a CSV line: below the library's limit of a cell."""
MAX_LINES_ABOVE = 40
"""Number of lines above a row that are searched for the headings of its table."""


def _is_of_contents(line: str) -> bool:
    said = line.strip("| ")
    page = _PAGE.search(said)
    return bool(page and _PART.match(said)) and said[: page.start() if page else 0].strip("| ").count("|") <= 1


def _feet(lines: Sequence[_Line]) -> frozenset[int]:
    """Return the lines of page headers and footers: with a number, and alone."""
    texts = dict(lines)

    def ends(number: int) -> bool:
        return number not in texts or _says_nothing(texts[number])

    return frozenset(
        number
        for number, line in lines
        if _is_of_contents(line)
        or (
            (
                _ALONE_WITH_NUMBER.match(" ".join(line.replace("|", " ").split()))
                and len(split_row_cells(line)) < MANY_CELLS
            )
            and ends(number - 1)
            and ends(number + 1)
        )
    )


def _says_nothing(line: str) -> bool:
    is_mark = (
        _RULE.match(line) is not None or _PAGE_NUMBER.match(line) is not None or parse_place_marker(line) is not None
    )
    return not line.strip() or is_mark


def _line_starts(paragraph: Iterable[_Line]) -> list[tuple[int, int]]:
    starts: list[tuple[int, int]] = []
    at = 0
    for number, line in paragraph:
        starts.append((at, number))
        at += len(line) + 1
    return starts


def _line_at(starts: Sequence[tuple[int, int]], position: int) -> int:
    return next(number for start, number in reversed(starts) if start <= position)


CITED = compile_bounded(r"\[([^\[\]]+):(\d{1,9})-(\d{1,9})\]")
QUOTED = compile_bounded(r"\"(.*)\"", re.DOTALL)
TOPIC = " – "
"""Separates the step of a conclusion from its text."""
_READ_HEADER = compile_bounded(r"^.+, lines \d+-\d+ of \d+$")
_NUMBERED = compile_bounded(r"^(\d{1,9})\| (.*)$", re.MULTILINE)
_CUT_LINE = compile_bounded(r" … \([\d,]+ characters in all[^()\n]{0,80}\)$")
_SUMMARISED_NOTE = compile_bounded(r"\bnote \[([^\[\]]+):(\d{1,9})-(\d{1,9})\] (.*?)(?=; |$)", re.MULTILINE)
_NOTE = compile_bounded(r"^\d+\. \[([^\[\]]+):(\d{1,9})-(\d{1,9})\] (.*)$", re.MULTILINE)


class LineRange(Value):
    """A range of lines of a document."""

    document: str
    first_line: int
    last_line: int

    @property
    def citation(self) -> str:
        """The citation, as written everywhere: `[document:first-last]`."""
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class NoteRecord(Value):
    """A note: words of a document and their place."""

    text: str
    place: LineRange


def format_document_label(document: str) -> str:
    """Return a readable document name: without extension, and without folder if the name alone is meaningful."""
    name = document.rsplit("/", 1)[-1]
    stem, dot, ending = name.rpartition(".")
    if stem.strip("_").lower() in AMBIGUOUS_FILE_STEMS:
        return "/".join(document.rsplit("/", 2)[-2:])
    return stem if dot and stem and ending.isalpha() and len(ending) <= 8 else name


def extract_citations(text: str) -> tuple[LineRange, ...]:
    """Return all citations in a text."""
    return tuple(_place(*found) for found in CITED.findall(text))


def parse_search_hits(result: str) -> tuple[LineRange, ...]:
    """Return the places of a search's passages, best first."""
    return tuple(place for line in result.splitlines() if CITED.fullmatch(line) for place in extract_citations(line))


def read_lines(result: str) -> Sequence[_Line]:
    """Return the numbered lines of a page of a document; empty if the result is something else."""
    header, _, body = result.partition("\n")
    if _READ_HEADER.match(header) is None:
        return ()
    return [(int(number), _CUT_LINE.sub("", text)) for number, text in _NUMBERED.findall(body)]


def parse_note_list(result: str) -> Iterator[NoteRecord]:
    """Yield the notes of a page of `read_notes`."""
    for document, first, last, text in _NOTE.findall(result):
        yield NoteRecord(text=text, place=_place(document, first, last))


def parse_summary_notes(summary: str) -> Iterator[NoteRecord]:
    """Yield the beginnings of the notes in a summary of ours."""
    for document, first, last, text in _SUMMARISED_NOTE.findall(summary):
        yield NoteRecord(text=text, place=_place(document, first, last))


def parse_subagent_notes(result: str) -> Iterator[NoteRecord]:
    """Yield the quotations in a subagent's result, one per line, followed by their places; of one that was stopped they
    are its notes, without quotation marks.
    """
    for line in result.splitlines():
        cited = extract_citations(line)
        if len(cited) == 1:
            quoted = QUOTED.search(line)
            yield NoteRecord(text=quoted[1] if quoted else line.partition(cited[0].citation)[0].strip(), place=cited[0])


def parse_taken_note(exchange: ToolCallRecord) -> NoteRecord:
    """Return the note that a call of `take_note` stores."""
    place = _place(exchange.text("document"), exchange.number("first_line"), exchange.number("last_line"))
    return NoteRecord(text=" ".join(exchange.text("text").split()), place=place)


def _place(document: str, first_line: str | int, last_line: str | int) -> LineRange:
    return LineRange(document=document, first_line=int(first_line), last_line=int(last_line))
