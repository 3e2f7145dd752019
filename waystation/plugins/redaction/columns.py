"""Detects secrets, phone numbers and cards in a table column by its heading, and people by their surroundings.

Tables are lines of cells with separators, as CSV, Markdown and databases print them, also with rules between the lines,
quoted cells that have separators and line ends, or blanks as separators. Tables are searched in the whole text: they
may be long.

People are detected in cells, elements and list items, in capitals, after forms of address, and in scripts without a
list of names, by surroundings and lists, whatever the language model finds. Also by the e-mail address next to the
name, and in the lines in which authors sign.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import chain, pairwise
from types import MappingProxyType
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded, compile_literals
from waystation.plugins.redaction.assigned_secrets import (
    ACCESS,
    CARD,
    KEY,
    PASSWORD,
    PHONE,
    UNLIKE_A_WORD,
    is_dummy_value,
    to_lower_same_length,
)
from waystation.plugins.redaction.detections import Detection
from waystation.plugins.redaction.formats import RecognizerMatch
from waystation.plugins.redaction.people import (
    CALLED_AFTER_PEOPLE,
    CAPITALISED,
    CITIES,
    FAMILY_NAMES,
    GIVEN_NAMES,
    OF_A_PERSON,
    PERSON_SAYS,
    STANDING_APART,
    NameWord,
)

_NAME = rf"[\w .-]{{0,40}}?(?:(?P<password>{PASSWORD})|(?P<key>{ACCESS}|{KEY}))"
_HEADING = compile_bounded(
    rf"\A(?:{_NAME}|(?P<short>pass|pw|pass[ _-]word)|(?P<code>pin|cv[vc]2?)"
    rf"|[\w .-]{{0,20}}?(?:(?P<phone>{PHONE})|(?P<card>{CARD}))(?:[ -](?:numbers?|no\.?))?)\Z"
)
_ANY_NAME = compile_bounded(
    rf"{PASSWORD}|\b(?:pass|pw|pin|cv[vc]2?|pass[ _-]word)\b|{ACCESS}|{KEY}"
    r"|phone|fax|mobil|telef|\btel\b|handy|card|kart"
)
_AROUND_A_HEADING = "\"'*_` \t\r\n"
_SEPARATORS = "|│┃\t;,"
_BLANKS = "  "
"""Separator of tables whose cells are separated by two blanks or more."""
_GAP = compile_bounded(r" {2,}+|\t++")
_QUOTABLE = "\t;,"
"""Separators of formats in which quoted cells may have separators and line ends."""
_END_OF_DUMP = "\\."
_MAX_ROW_CHARACTERS = 4_000
"""Maximum characters to the end of a quoted cell."""
_FIELD_NAME = compile_bounded(
    r"\A(?:\s*(?:[A-Za-z_][\w.-]*|\"[\w .-]+\"|'[\w .-]+')\s*"
    r"|[A-Za-z_][\w.-]* [\w.-]+\s*|[A-Z][\w.-]*(?: [\w.-]++){2,3}\s*)\Z"
)
"""Two words, or more if capitalised, count without a blank before them, as there is after a comma in a sentence."""
_RULE = compile_bounded(r"\A[ \t|│┃:+]*+[-=─━═┼╪├╞][\s|│┃:+=─━═┼╪├┤╞╡-]*+\Z")
_CODE = compile_bounded(r"\A\d{3,8}\Z")
_LEAST_KEY = compile_bounded(
    rf"\A(?:(?=[^\s]*\d)(?=[^\s]*[a-z])\S{{6,}}|{UNLIKE_A_WORD}|(?-i:(?=\S*[a-z][A-Z])[\w+/=-]{{24,}}))\Z",
    re.IGNORECASE,
)
_PHONE = compile_bounded(
    r"\A(?=(?:\D*\d){7,15}\D*\Z)(?![1-9]\d{0,8}\Z|\d+\.\d+\Z|\d{4}-\d\d-\d\d\Z)[+(]?\d[\d ()./-]*\d\Z"
)
"""A few digits without a symbol may be a count, for example of calls."""
_CARD = compile_bounded(r"\A\d(?:[ -]?\d){12,18}\Z")
_ANYTHING = compile_bounded(r"\A(?=..)\S++(?: \S++){0,5}\Z")
_TELLING = compile_bounded(r"\A(?=\S*[\d!#$%^&*?~+@])\S{4,}\Z")


_FITS = MappingProxyType(
    {
        "password": ("SECRET", _ANYTHING),
        "short": ("SECRET", _ANYTHING),
        "key": ("SECRET", _LEAST_KEY),
        "code": ("SECRET", _CODE),
        "phone": ("PHONE", _PHONE),
        "card": ("CARD", _CARD),
    }
)
"""Content of the column and form of its values, by the group of the heading."""


_MARKS = MappingProxyType({mark: compile_literals([mark, '"']) for mark in _SEPARATORS})


class _Column(NamedTuple):
    number: int
    type: str
    fits: re.Pattern[str]


def find_column_values(text: str) -> Iterator[RecognizerMatch]:
    """Yield the cells under such a heading, down to the first line of another form."""
    lowered = to_lower_same_length(text)
    read = 0
    for name in _ANY_NAME.finditer(lowered):
        if name.start() < read:
            continue
        start, end = text.rfind("\n", 0, name.start()) + 1, _end_of_line(text, name.end())
        read = end
        line = text[start:end]
        separator = next((mark for mark in (*_SEPARATORS, _BLANKS) if mark in line.strip()), "")
        cells = [line[slice(*cell)] for cell in _parted(line, separator)] if separator else []
        columns = _columns(cells, separator) if cells else []
        if columns and not _goes_on(text, start, separator):
            read = yield from _cells_below(text, end + 1, _Form(separator, len(cells)), columns)
    yield from _copied(text, lowered)
    yield from _in_pairs(text, lowered)


class _Form(NamedTuple):
    separator: str
    parts: int
    """Number of cells in a row."""


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _columns(names: Sequence[str], separator: str) -> list[_Column]:
    if separator in {",", ";", _BLANKS} and not all(_FIELD_NAME.match(name) for name in names):
        return []
    found = ((number, _meaning(name)) for number, name in enumerate(names))
    columns = [_Column(number, *_FITS[name.lastgroup or ""]) for number, name in found if name]
    if separator != _BLANKS:
        return columns
    # Help texts of programs are laid out like this too: their words are not values.
    return [one._replace(fits=_TELLING) if one.fits is _ANYTHING else one for one in columns]


def _meaning(name: str) -> re.Match[str] | None:
    return _HEADING.match(to_lower_same_length(name).strip(_AROUND_A_HEADING).replace("_", " "))


def _goes_on(text: str, start: int, separator: str) -> bool:
    """Return whether the line is a row of a table that began before it."""
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    if separator == _BLANKS:
        return False
    return start > 0 and before.count(separator) == text[start : _end_of_line(text, start)].count(separator)


def _parted(row: str, separator: str) -> list[tuple[int, int]]:
    """Return start and end of each cell."""
    if separator == _BLANKS:
        begin = len(row) - len(row.lstrip())
        gaps = [(0, begin), *[gap.span() for gap in _GAP.finditer(row.rstrip(), begin)], (len(row.rstrip()), len(row))]
        return [(before[1], gap[0]) for before, gap in pairwise(gaps)]
    cells: list[tuple[int, int]] = []
    begin, quoted = 0, False
    for mark in _MARKS[separator].finditer(row):
        if mark[0] == '"':
            quoted = not quoted and (separator in _QUOTABLE)
        elif not quoted:
            cells.append((begin, mark.start()))
            begin = mark.end()
    return [*cells, (begin, len(row))]


def _row_end(text: str, position: int, separator: str) -> int:
    """Return the end of the row that begins there: after the end of a quoted cell, if that is near."""
    end = _end_of_line(text, position)
    if separator not in _QUOTABLE or text.count('"', position, end) % 2 == 0:
        return end
    last = min(len(text), position + _MAX_ROW_CHARACTERS)
    quotes, longer = 1, end
    while quotes % 2 and longer < last:
        begin, longer = longer + 1, _end_of_line(text, longer + 1)
        quotes += text.count('"', begin, longer)
    return longer if quotes % 2 == 0 and longer <= last else end


def _cells_below(
    text: str, position: int, form: _Form, columns: Sequence[_Column]
) -> Generator[RecognizerMatch, None, int]:
    """Yield the values below a heading. Returns the position after the table."""
    while position < len(text):
        end = _row_end(text, position, form.separator)
        row = text[position:end]
        if row == _END_OF_DUMP:
            break
        if not _RULE.match(row):
            cells = _parted(row, form.separator)
            if len(cells) != form.parts:
                break
            yield from _cells(row, cells, columns, position)
        position = end + 1
    return position


def _cells(
    row: str, cells: Sequence[tuple[int, int]], columns: Sequence[_Column], position: int
) -> Iterator[RecognizerMatch]:
    for number, type_, fits in columns:
        value = row[slice(*cells[number])].strip().strip("\"'`")
        if fits.match(value) and not is_dummy_value(value):
            start = position + row.index(value, cells[number][0])
            yield RecognizerMatch(type_, start, start + len(value), 0.9)


_COPY = compile_bounded(
    r"\bcopy\s++[^\s(]{1,200}+\s*+\((?P<columns>[^()]{1,2000}+)\)\s*+from\s++stdin[^\n]{0,200}+\n", re.IGNORECASE
)


def _copied(text: str, lowered: str) -> Iterator[RecognizerMatch]:
    """Yield values in rows of PostgreSQL dumps, whose columns the statement before them names."""
    copy = _COPY.search(text) if "stdin" in lowered else None
    while copy:
        names = copy["columns"].split(",")
        columns = _columns(names, "\t")
        position = yield from _cells_below(text, copy.end(), _Form("\t", len(names)), columns)
        # Rows are read once: another statement among them begins no table.
        copy = _COPY.search(text, position)


_NAMES_AND_VALUES = compile_bounded(
    r"^[ \t|│\"']{0,40}+(?:key|name|variable|setting|parameter|property|field)[\"']?"
    r"(?:[ \t]{0,80}+(?P<mark>[|│,;])[ \t]{0,80}+|[ \t]{1,80}+)[\"']?value[\"']?[ \t|│\r]{0,80}+$",
    re.MULTILINE,
)
_NAME_AND_VALUE = compile_bounded(r"\A[ \t]*+(?P<name>\S++)[ \t]++(?P<value>\S++)[ \t\r]*+\Z")


def _in_pairs(text: str, lowered: str) -> Iterator[RecognizerMatch]:
    """Yield values next to names of secrets, under a heading with *name* and *value*."""
    read = 0
    for heading in _NAMES_AND_VALUES.finditer(lowered):
        if heading.start() < read:
            continue
        position = heading.end() + 1
        while position < len(text) and (row := text[position : (end := _end_of_line(text, position))]).strip():
            if not _RULE.match(row):
                yield from _pair(row, heading["mark"], position)
            position = end + 1
        read = position


def _pair(row: str, mark: str | None, position: int) -> Iterator[RecognizerMatch]:
    if mark is None:
        found = _NAME_AND_VALUE.match(row)
        cells = [found.span("name"), found.span("value")] if found else []
    else:
        cells = [cell for cell in _parted(row, mark) if row[slice(*cell)].strip()]
    name = _meaning(row[slice(*cells[0])]) if len(cells) > 1 else None
    if name is not None:
        column = _Column(1, *_FITS[name.lastgroup or ""])
        yield from _cells(row, cells, [column], position)


_SCORE = 0.5
_ONE, _LAST = rf"(?P<name>{CAPITALISED})", rf"(?P<last>{CAPITALISED})"
_SAYING = compile_bounded(rf"{STANDING_APART}{_ONE}(?={PERSON_SAYS})")
_SPOKEN_TO = compile_bounded(
    r"\b(?i:thanks|thank you|thx|cheers|hi|hello|hey|dear|(?:kind |best )?regards|sincerely|greetings|good morning)"
    rf",?[ \n]{_ONE}(?=[ \t]{{0,8}}+(?:[\n,.!?;:)]|\Z))"
)
_SPOKEN_OF = compile_bounded(
    r"\b(?i:ask(?:ed|s|ing)?|tell|told|ping(?:ed)?|e-?mail(?:ed)?|met(?: with)?|remind(?:ed)?|assigned to|thanks to"
    rf"|sp(?:oke|eak) (?:to|with)|talk(?:ed)? (?:to|with)|according to|says|said) {_ONE}(?! [A-Z])"
)
_ITEM = compile_bounded(rf"^[ \t]{{0,20}}+(?:[-*+]|\d{{1,3}}[.)])[ \t]\[[ xX]\][ \t]{_ONE}:[ \t]", re.MULTILINE)
_AROUND_ONE = (_SPOKEN_TO, _SPOKEN_OF, _ITEM)
_MIN_CHARACTERS = 3
_CELL_BEFORE_AN_ADDRESS = compile_bounded(
    rf"(?:^|(?<=[,;\t|\"]))[\" ]{{0,2}}{_ONE}\"?[,;\t|][ \"]{{0,2}}(?:(?P<local>[\w.+-]{{1,64}})@|<EMAIL_)",
    re.MULTILINE,
)
_SIDE_BY_SIDE = compile_bounded(
    rf"(?:^|(?<=[,;\t|(\[]))[ \"']{{0,2}}{_ONE}[\"']?[ ]?[,;\t|][ \"']{{0,2}}{_LAST}"
    r"(?=[\"']?[ ]?(?:[,;\t|)\]\r\n]|\Z))",
    re.MULTILINE,
)
_ALONE = compile_bounded(
    r"(?:<(?:td|th|dd|li|span|p|b|strong|name|author)>[ \t]{0,8}|\b(?:for|by|from|with|says|said|asked|user) )"
    rf"{_ONE} {_LAST}(?!\.?\w| [A-Z])"
)
_IN_CAPITALS = compile_bounded(
    r"(?<![\w.$/`'’-])(?<![A-Z] )(?P<name>[A-Z]{3,20})(?P<comma>,)? (?P<last>[A-Z]{3,20}(?:-[A-Z]{3,20})?)"
    r"(?![\w(./=`-]| [A-Z]{2})"
)
_NAMES_A_FILE = compile_bounded(
    rf"{STANDING_APART}{_ONE} (?P<last>[^\W\d_a-z][^\W\d_]{{1,40}}+)"
    r"(?=\.(?:md|txt|pdf|docx?|xlsx?|csv|html?|eml|rtf|odt)\b)"
)


def find_speaker_names(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield single names before verbs of speech or actions, or before an address, in this span of the text."""
    for match in _SAYING.finditer(text, start, end):
        word = NameWord.from_span(text, *match.span("name"))
        if word.is_listed:
            yield Detection("PERSON", word.start, word.end, _SCORE)


def find_people_by_context(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield people in this span of the text, each with at least one listed name."""
    for begin, behind in chain(_single(text, start, end), _beside_each_other(text, start, end)):
        yield Detection("PERSON", begin, behind, _SCORE)
    for pattern, fits in ((_ALONE, _family_behind), (_NAMES_A_FILE, _family_behind), (_IN_CAPITALS, _in_capitals)):
        for match in pattern.finditer(text, start, end):
            if fits(match):
                yield Detection("PERSON", match.start("name"), match.end("last"), _SCORE)
    if not text[start:end].isascii():
        yield from _in_other_scripts(text, start, end)


def _single(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for pattern in _AROUND_ONE:
        for match in pattern.finditer(text, start, end):
            word = NameWord.from_span(text, *match.span("name"))
            if word.is_listed and len(word.part) >= _MIN_CHARACTERS:
                yield word.start, word.end
    for match in _CELL_BEFORE_AN_ADDRESS.finditer(text, start, end):
        word = NameWord.from_span(text, *match.span("name"))
        is_of_address = word.part and word.is_unambiguous_name and (match["local"] or "").lower().startswith(word.part)
        if word.is_listed or is_of_address:
            yield word.start, word.end


def _beside_each_other(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of both words of a name in two adjacent cells."""
    for match in _SIDE_BY_SIDE.finditer(text, start, end):
        words = [NameWord.from_span(text, *match.span(group)) for group in ("name", "last")]
        if _given_and_family(text, words) and all(word.is_listed and word.may_continue_name for word in words):
            yield from ((word.start, word.end) for word in words)


def _given_and_family(text: str, words: Sequence[NameWord]) -> bool:
    """Return whether the words are a given and a family name in either order; not the `NaN` of figures."""
    if not all(text[word.end - 1].islower() for word in words):
        return False
    return any(one.part in GIVEN_NAMES and other.part in FAMILY_NAMES for one, other in (words, words[::-1]))


def _family_behind(match: re.Match[str]) -> bool:
    """Return whether the last word is a listed family name, and nothing contradicts the first."""
    first, last = (NameWord.from_span(match.string, *match.span(group)) for group in ("name", "last"))
    if (
        not first.may_start_name
        or first.is_possessive
        or last.part in CALLED_AFTER_PEOPLE
        or last.part.title() in CITIES
    ):
        return False
    return last.part in FAMILY_NAMES and last.may_continue_name


def _in_capitals(match: re.Match[str]) -> bool:
    """Return whether it is a name in capitals: `JOHN SMITH`, `SMITH, JOHN`.

    Alone on its line, the given name need not be listed.
    """
    first, last = (NameWord.from_span(match[group].title(), 0, len(match[group])) for group in ("name", "last"))
    given, family = (last, first) if match["comma"] else (first, last)
    if family.part not in FAMILY_NAMES or not family.may_continue_name or family.part.title() in CITIES:
        return False
    if family.part in CALLED_AFTER_PEOPLE or not given.is_unambiguous_name or not given.may_continue_name:
        return False
    is_line = match.string[match.start() - 1 : match.start()] in {"", "\n"} and (
        match.string[match.end() : match.end() + 1] in {"", "\n", "\r"}
    )
    return given.part in GIVEN_NAMES or (match["comma"] is not None and is_line)


_CYRILLIC = r"[А-ЯЁІЇЄҐ][а-яёіїєґ]{1,25}+(?:-[А-ЯЁІЇЄҐ][а-яёіїєґ]{1,25}+)?"
_GREEK = r"[Α-ΩΆΈΉΊΌΎΏ][α-ωάέήίόύώϊϋΐΰ]{1,25}+"
_IN_ONE_SCRIPT = rf"(?:{_CYRILLIC}(?: {_CYRILLIC}){{0,2}}|{_GREEK}(?: {_GREEK}){{0,2}})(?!\w)"
_OTHER_SCRIPT = compile_bounded(rf"(?<!\w){_IN_ONE_SCRIPT}")
_ENDS_AS_NAMES_DO = compile_bounded(
    r"(?:[оеё]в|[иы]н|[оеё]в[ауы]|[иы]н[ауы]|[оеёиы][вн]ым|[оеё]вой|[сц]к(?:ий|ая|ого|ому|им|ой|ую)|енко|чук|швили|дзе"
    r"|[оеё]вич(?:а|у|ем)?|[оеё]вн[аыу]|ичн[аыу]|όπουλος|οπούλου|ίδης|ίδου|άκης|άκη|ιάδης|ιάδου)\Z"
)
_NAMED = compile_bounded(rf"(?:(?:[Мм]еня|[Мм]ене) (?:зовут|звати)|(?:ФИО|[Ии]мя|Ім['’]я):) (?P<name>{_IN_ONE_SCRIPT})")
_OF_CHINA = (
    "(?:欧阳|歐陽|司马|司馬|诸葛|諸葛|[王李张張刘劉陈陳杨楊赵趙黄黃周吴吳徐孙孫胡朱高林何郭马馬罗羅梁宋郑鄭谢謝韩韓唐冯馮于"
    "董萧蕭程曹袁邓鄧许許傅沈曾彭吕呂苏蘇卢盧蒋蔣蔡贾賈丁魏薛叶葉阎閻余潘杜戴夏钟鍾汪田任姜范方石姚谭譚廖邹鄒熊金陆陸郝孔白崔康毛邱"
    "秦江史顾顧侯邵孟龙龍万萬段雷钱錢汤湯尹黎易常武乔喬贺賀赖賴龚龔])"
)
_CHINESE = compile_bounded(
    rf"(?:(?:我叫|名叫|名字(?:是|叫)|姓名(?:是|为|為)|(?:姓名|联系人|聯絡人|作者|负责人|負責人)[:：][ ]?"
    rf"|\b(?i:{OF_A_PERSON}|name)[ ]?[:=][ ]?[\"']?)(?P<name>{_OF_CHINA}[一-鿿]{{1,2}})"
    rf"|(?<![一-鿿])(?P<titled>{_OF_CHINA}[一-鿿]{{0,2}}?)(?=先生|女士|小姐))"
)


def _in_other_scripts(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield names in scripts without a list: by endings of Russian and Greek names, and by words that announce one."""
    for match in _OTHER_SCRIPT.finditer(text, start, end):
        if " " in match[0] and any(map(_ENDS_AS_NAMES_DO.search, match[0].split())):
            yield Detection("PERSON", *match.span(), _SCORE)
    for pattern in (_NAMED, _CHINESE):
        for match in pattern.finditer(text, start, end):
            yield Detection("PERSON", *match.span(match.lastgroup or 0), _SCORE)


_MAX_NAME_CHARACTERS = 60


def expand_to_full_name(text: str, find: Detection) -> Detection:
    """Extend a detection to adjacent capitalised words of its script: the language model sees half of such names."""
    if text[find.start : find.end].isascii():
        return find
    around = max(0, find.start - _MAX_NAME_CHARACTERS), min(len(text), find.end + _MAX_NAME_CHARACTERS)
    for match in _OTHER_SCRIPT.finditer(text, *around):
        if match.start() <= find.start and find.end <= match.end():
            return find._replace(start=match.start(), end=match.end())
    return find


_SIGNED_WORD = r"[^\W\d_a-z][^\W\d_]{1,40}(?:['’-][^\W\d_]{1,40}){0,3}"
_SIGNED = compile_bounded(
    rf"\b(?:Author|Committer|(?:Signed-off|Co-authored|Reported|Reviewed|Acked|Tested)-by):[ \t]+"
    rf"(?P<name>{_SIGNED_WORD}(?: {_SIGNED_WORD}){{1,3}})"
)
_BESIDE_AN_ADDRESS = compile_bounded(
    rf"(?P<name>(?<![\w'’-]){_SIGNED_WORD} {_SIGNED_WORD})(?: at)? "
    rf"(?:(?<=at )[\w.+-]{{1,64}}@\w|<(?:EMAIL_[0-9a-f]{{12}}>|[\w.+-]{{1,64}}@\w))"
)


def find_signature_names(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield the names of signing authors in this span of the text."""
    for pattern in (_SIGNED, _BESIDE_AN_ADDRESS):
        for match in pattern.finditer(text, start, end):
            yield Detection("PERSON", *match.span("name"), _SCORE)
