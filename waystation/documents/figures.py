"""Finds figures and dates in texts of several languages, and decides whether a passage contains those of a sentence."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from waystation.kernel.patterns import compile_bounded

MAX_FIGURES = 5_000
"""Maximum figures of one text that are read."""
_MAX_DIGITS = 15
"""Longer numbers are identifiers: they are compared as they are written."""
_FIRST_YEAR, _LAST_YEAR = 1000, 2199
_MIN_SPELLED = 13
"""Spelled numbers below this one count things in the writer's own words, as in `two reasons`, unless a unit follows."""

_NUMBER = compile_bounded(
    r"(?<![^\W_])(?<!\d[.,])(?:\d{1,3}(?:[ '’]\d{3}(?!\d)){1,5}(?:[.,]\d{1,9})?+|\d{1,40}+(?:[.,]\d{1,20}+){0,6})"
)
_PERCENT, _POINTS = "%", "percentage points"
_UNIT_WORDS = {
    _PERCENT: "% percent pct prozent procent porcento percento",
    _POINTS: "pp prozentpunkte prozentpunkten",
    "bp": "bp bps",
    "$": "$ us$ usd dollar dollars",
    "€": "€ eur euro euros",
    "£": "£ gbp",
    "pound": "pound pounds",
    "¥": "¥ jpy yen",
    "₹": "₹ inr rupee rupees",
    "chf": "chf franken",
    "kr": "kr sek nok dkk kronor kroner",
    "cny": "cny rmb yuan renminbi",
    "km": "km kilometre kilometres kilometer kilometers",
    "m": "metre metres meter meters mètres metros",
    "cm": "cm centimetre centimetres centimeter centimeters zentimeter",
    "mm": "mm millimetre millimetres millimeter millimeters",
    "mile": "mi mile miles meilen",
    "ft": "ft foot feet",
    "inch": "inch inches",
    "kg": "kg kilogram kilograms kilogramm kilo kilos",
    "g": "gram grams gramm grammes",
    "mg": "mg milligram milligrams",
    "lb": "lb lbs",
    "t": "tonne tonnes tons ton tonnen",
    "l": "litre litres liter liters",
    "ml": "ml millilitre millilitres milliliter milliliters",
    "°c": "°c celsius",
    "°f": "°f fahrenheit",
    "second": "s sec secs second seconds sekunde sekunden secondes segundos",
    "ms": "ms millisecond milliseconds",
    "minute": "min mins minute minutes minuten minutos",
    "hour": "h hr hrs hour hours stunde stunden heures horas",
    "day": "day days tag tage tagen jour jours día días",
    "week": "week weeks woche wochen semaine semaines semana semanas",
    "month": "month months monat monate monaten mois mes meses",
    "year": "year years yr yrs jahr jahre jahren ans année années año años",
    "kb": "kb kilobyte kilobytes",
    "mb": "mb megabyte megabytes",
    "gb": "gb gigabyte gigabytes",
    "tb": "tb terabyte terabytes",
    "kw": "kw",
    "mw": "mw",
    "gw": "gw",
    "kwh": "kwh",
    "mwh": "mwh",
    "gwh": "gwh",
}
_UNITS = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_CURRENCIES = frozenset({"$", "€", "£", "pound", "¥", "₹", "chf", "kr", "cny"})
_STRICT = frozenset({_PERCENT, _POINTS, "bp"})
"""Units without which a figure is another one."""
_SAME_UNIT = ({"£", "pound"}, {"lb", "pound"})
_SCALE_WORDS = {
    10**3: "k thousand thousands tsd tausend mille mil",
    10**5: "lakh lakhs",
    10**6: "million millions mn mio millionen milliones millones",
    10**7: "crore crores",
    10**9: "bn billion billions mrd milliarde milliarden milliard milliards",
    10**12: "tn trillion trillions bio billionen",
}
_SCALES = {word: scale for scale, words in _SCALE_WORDS.items() for word in words.split()}
_MONEY_SCALES = {"m": 10**6, "b": 10**9, "t": 10**12}
"""What single letters mean after an amount of money; elsewhere `5 m` are metres."""
_LETTER_UNITS = {"m": "m", "g": "g", "t": "t", "l": "l"}
_AFTER = compile_bounded(
    r"[ -]?(?:(?P<word>per ?cent(?:age)? points?|per ?cent|percentage points?|pour cent|por ciento|por cento|per cento|"
    r"°[CF]?|degrees? (?:Celsius|Fahrenheit)|US\$|[%$€£¥₹]|[^\W\d_]{1,16}+)\.?)"
)
_PHRASES = {
    "percent point": _POINTS,
    "percent points": _POINTS,
    "pour cent": _PERCENT,
    "por ciento": _PERCENT,
    "por cento": _PERCENT,
    "per cento": _PERCENT,
    "degree celsius": "°c",
    "degrees celsius": "°c",
    "degree fahrenheit": "°f",
    "degrees fahrenheit": "°f",
}
_CURRENCY_BEFORE = compile_bounded(r"(US\$|USD|EUR|GBP|CHF|JPY|INR|CNY|RMB|[$€£¥₹])[ ]?\Z")
_ORDINAL = compile_bounded(r"(?:st|nd|rd|th|er|e|ème|º|ª)(?![^\W_])")
_JOIN = compile_bounded(r"[ ]?(?:-|–|—|to|and|or|bis|und|oder|à|et|ou|a|y|,|/)[ ]?[$€£¥₹]?\Z")
_HEADER = compile_bounded(
    r"(?<![\d ])[ (]*(?:%|per ?cent|percent)|\bin (?:US\$|[$€£])?[ ]?(thousand|million|billion)s?\b|"
    r"\b(Mio|Mrd|Tsd)\b|(?<![^\W_])([$€£¥₹])",
    re.IGNORECASE,
)

_SPELLED = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"),
    *("thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_FOREIGN = {
    "zwei": 2, "drei": 3, "vier": 4, "fünf": 5, "sechs": 6, "sieben": 7, "acht": 8, "neun": 9, "zehn": 10, "elf": 11,
    "zwölf": 12, "zwanzig": 20, "dreißig": 30, "deux": 2, "trois": 3, "quatre": 4, "cinq": 5, "sept": 7, "huit": 8,
    "neuf": 9, "dix": 10, "onze": 11, "douze": 12, "vingt": 20, "trente": 30, "dos": 2, "tres": 3, "cuatro": 4,
    "cinco": 5, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10, "veinte": 20, "treinta": 30,
}  # fmt: skip
_SMALL = {
    **{word: number for number, word in enumerate(_SPELLED)},
    **{word: 10 * number for number, word in enumerate(_TENS, 2)},
    **_FOREIGN,
    "dozen": 12,
}
_ORDINAL_WORDS = (
    *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"),
    *("eleventh", "twelfth"),
)
_ORDINALS = {word: number for number, word in enumerate(_ORDINAL_WORDS, 1)}
_FRACTIONS = {"half": 50.0, "quarter": 25.0, "third": 100 / 3, "halved": 50.0}
_NUMBER_WORD = "|".join(sorted([*_SMALL, *_SCALES, "hundred"], key=len, reverse=True))
_SPELLED_NUMBER = compile_bounded(
    rf"(?<![^\W_])(?:{_NUMBER_WORD})(?:(?:[ -]| and )(?:{_NUMBER_WORD})(?![^\W_])){{0,8}}(?![^\W_])", re.IGNORECASE
)
_WORD_FIGURE = compile_bounded(
    rf"(?<![^\W_])(?:{'|'.join([*_ORDINALS, 'half', 'quarter', 'halved'])})(?![^\W_])", re.IGNORECASE
)

_MONTH_NAMES = (
    "january jan januar janvier enero gennaio janeiro januari",
    "february feb februar février febrero febbraio fevereiro februari",
    "march mar märz mars marzo março maart",
    "april apr avril abril aprile",
    "may mai mayo maggio maio mei",
    "june jun juni juin junio giugno junho",
    "july jul juli juillet julio luglio julho",
    "august aug août agosto augustus",
    "september sep sept septembre septiembre settembre setembro",
    "october oct oktober okt octobre octubre ottobre outubro",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre diciembre dicembre dezembro",
)
MONTHS: Mapping[str, int] = {word: number for number, words in enumerate(_MONTH_NAMES, 1) for word in words.split()}
"""Numbers of the months by their names, in small letters, in English, German, French, Spanish, Italian, Portuguese and
Dutch.
"""
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_DATE_WORDS = compile_bounded(
    rf"(?<![^\W_])(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?[ ]?(?:of |de |di )?)?(?P<month>{_MONTH})\b\.?"
    rf"(?:[ ](?P<after>\d{{1,2}})(?:st|nd|rd|th)?(?![\d.%:]\d|\d|[ ]?%))?"
    r"(?:,?[ ](?:of |de |del )?(?P<year>\d{4})(?!\d))?",
    re.IGNORECASE,
)
_DATE_NUMBERS = compile_bounded(
    r"(?<![\w.,])(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{1,2})([-/.])(\d{1,2})\6(\d{4}|\d{2})|"
    r"(\d{4})年(\d{1,2})月(?:(\d{1,2})日)?)(?![\w]|[.,]\d)"
)
_TIME = compile_bounded(r"(?<![\w:.])(\d{1,2})[:.h](\d{2})(?![\d:.])(?:[ ]?([ap])\.?m\b\.?)?", re.IGNORECASE)
_YEAR_IN_WORD = compile_bounded(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")

_ABOUT = compile_bounded(
    r"(?:\b(?:about|around|roughly|approximately|approx\.|circa|ca\.|some|or so|an estimated|etwa|rund|ungefähr|circa|"
    r"environ|près de|unos|cerca de|aproximadamente|almost|nearly|close to|just under|just over|knapp|presque|casi|"
    r"over|more than|above|at least|exceed(?:s|ed|ing)?|under|less than|fewer than|below|up to|at most|mehr als|über|"
    r"plus de|más de)|[~≈])[ ]?(?:the |a |US\$|[$€£¥₹])?[ ]?\Z",
    re.IGNORECASE,
)
_LOWER_BOUND = compile_bounded(
    r"\b(?:at least|no (?:less|fewer) than|not less than|a minimum of|minimum of|more than|over|above|upwards of|"
    r"mindestens|wenigstens|mehr als|über|au moins|plus de|al menos|como mínimo|más de)[ ]?(?:US\$|[$€£¥₹])?[ ]?\Z",
    re.IGNORECASE,
)
_UPPER_BOUND = compile_bounded(
    r"\b(?:at most|up to|no more than|not more than|a maximum of|maximum of|less than|fewer than|under|below|"
    r"höchstens|maximal|bis zu|weniger als|au plus|jusqu'à|moins de|a lo sumo|como máximo|hasta|menos de)"
    r"[ ]?(?:US\$|[$€£¥₹])?[ ]?\Z",
    re.IGNORECASE,
)
_FALL = compile_bounded(
    r"\b(?:fell|fall|falls|falling|fallen|declin\w{1,4}|decreas\w{1,4}|dropp?\w{0,3}|down|lower\w{0,2}|loss\w{0,2}|lost|"
    r"shr[aiu]nk\w{0,3}|reduc\w{1,5}|minus|negative|below|deficit|sank|sunken|slump\w{0,2}|gesunken|sank|baisse|cayó)\b",
    re.IGNORECASE,
)
_BEFORE_CHARACTERS = 28
"""Characters before a figure in which words such as `about` are looked for."""
_NEAR_CHARACTERS = 60
"""Characters before and after a figure in which a fall may be said in words."""


class Figure(NamedTuple):
    """A number in a text, with what gives it its meaning."""

    text: str
    start: int
    end: int
    values: tuple[float | str, ...]
    """What it may be, without its sign: `1.234` is one and a bit or more than a thousand. A string is an identifier."""
    unit: str = ""
    negative: bool = False
    step: float = 0
    """Value of one in its last digit that counts, as it is written."""
    is_scaled: bool = False
    kind: Literal["plain", "ordinal", "decade", "accounting"] = "plain"
    before: str = ""
    """The words before it."""
    is_spelled: bool = False

    @property
    def is_year(self) -> bool:
        """Whether it looks like a year."""
        number = self.values[0]
        return (
            not self.unit
            and not self.is_scaled
            and len(self.text) == len("2026")
            and self.text.isdecimal()
            and isinstance(number, float)
            and _FIRST_YEAR <= number <= _LAST_YEAR
        )


class DateMention(NamedTuple):
    """A date in a text, as far as it is written."""

    text: str
    start: int
    end: int
    year: int | None
    month: int | None
    day: int | None
    is_ambiguous: bool = False
    """Whether day and month may be the other way round."""


class TextFigures(NamedTuple):
    """All figures and dates of a text."""

    text: str
    figures: Sequence[Figure]
    dates: Sequence[DateMention]
    times: frozenset[int]
    """Times of day, in minutes."""


def normalize_text(text: str) -> str:
    """Return the text in the form that figures are read in: without narrow spaces, full-width digits and such."""
    return unicodedata.normalize("NFKC", text).replace("−", "-")


def extract_figures(text: str) -> TextFigures:
    """Extract the figures and dates of a text, as `normalize_text` returns it, in order.

    At most `MAX_FIGURES` figures are read.
    """
    dates = [*_iter_dates(text)]
    times = {match.span(): _minutes(match) for match in _TIME.finditer(text)} if ":" in text or "m" in text else {}
    times = {span: time for span, time in times.items() if time is not None}
    taken = sorted([*((date.start, date.end) for date in dates), *times])
    found: list[Figure] = []
    place = 0
    for match in _NUMBER.finditer(text):
        while place < len(taken) and taken[place][1] <= match.start():
            place += 1
        if place < len(taken) and taken[place][0] < match.end():
            continue
        found.append(_figure(text, match))
        if len(found) == MAX_FIGURES:
            break
    found += _iter_spelled(text, taken)
    found.sort(key=lambda figure: figure.start)
    return TextFigures(text, _share_units(text, found), dates, frozenset(times.values()))


def _minutes(match: re.Match[str]) -> int | None:
    hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
    if minute > 59 or hour > 23 or (":" not in match[0] and not half):
        return None
    return (hour % 12 + (12 if half == "p" else 0)) * 60 + minute if half else hour * 60 + minute


def _figure(text: str, match: re.Match[str]) -> Figure:
    written, start, end = match[0], match.start(), match.end()
    values, step = _read_number(written)
    before = text[max(0, start - _BEFORE_CHARACTERS) : start]
    unit = ""
    if currency := _CURRENCY_BEFORE.search(before):
        unit, start = _UNITS[currency[1].casefold()], start - len(currency[0])
        before = text[max(0, start - _BEFORE_CHARACTERS) : start]
    negative = before.endswith("-") and not before[-2:-1].isalnum() and before[-2:-1] not in {"-", ")", "%"}
    if negative:
        start, before = start - 1, before[:-1]
    kind: Literal["plain", "ordinal", "decade", "accounting"] = "plain"
    scale = 1
    if ordinal := _ORDINAL.match(text, end):
        kind, end = "ordinal", ordinal.end()
    elif text[end : end + 1] == "s" and len(written) == len("1990") and not text[end + 1 : end + 2].isalnum():
        kind, end = "decade", end + 1
    else:
        unit, scale, end = _read_unit(text, end, unit)
    if before.endswith("(") and text[end : end + 1] == ")":
        kind = "accounting"
    values = tuple(value * scale if isinstance(value, float) else value for value in values)
    return Figure(
        text=text[start:end].strip(),
        start=start,
        end=end,
        values=values,
        unit=unit,
        negative=negative,
        step=step * scale,
        is_scaled=scale > 1,
        kind=kind,
        before=before,
    )


def _read_number(written: str) -> tuple[tuple[float | str, ...], float]:
    """Return what a number may be, and the value of one in its last digit that counts."""
    plain = written.replace(" ", "").replace("'", "").replace("’", "")
    digits = plain.replace(".", "").replace(",", "")
    if len(digits) > _MAX_DIGITS or (digits.startswith("0") and len(digits) > 1 and digits == plain):
        return (plain,), 1
    grouped = plain != written
    marks = [sign for sign in plain if sign in ".,"]
    if not marks:
        return (float(plain),), _step_of_integer(plain)
    last = marks[-1]
    *groups, tail = plain.replace(",", ".").split(".")
    if len(set(marks)) == 2 and marks.count(last) == 1:
        return (float(f"{''.join(groups)}.{tail}"),), 10.0 ** -len(tail)
    by_thousands = len(groups[0]) <= 3 and groups[0] != "0" and all(len(one) in {2, 3} for one in groups[1:])
    if len(marks) > 1:
        return ((float(digits), plain), _step_of_integer(digits)) if by_thousands and len(tail) == 3 else ((plain,), 1)
    decimal = float(f"{groups[0]}.{tail}")
    if len(tail) == 3 and by_thousands and not grouped:
        thousands = float(digits)
        return (thousands, decimal) if last == "," else (decimal, thousands), _step_of_integer(digits)
    return (decimal,), 10.0 ** -len(tail)


def _step_of_integer(digits: str) -> float:
    return 10.0 ** (len(digits) - len(digits.rstrip("0"))) if digits.strip("0") else 1.0


def _read_unit(text: str, end: int, unit: str) -> tuple[str, int, int]:
    """Return the unit, the scale and the end of what follows a number."""
    scale = 1
    for _ in range(2):
        match = _AFTER.match(text, end)
        if match is None:
            break
        word = match["word"]
        small = word.casefold().replace("per cent", "percent").replace("percentage", "percent")
        if (
            scale == 1
            and (found := _SCALES.get(small) or (_MONEY_SCALES.get(small, 0) if unit in _CURRENCIES else 0))
            and not (small in {"k", "mil", "mille"} and text[end : end + 1] in " -" and unit not in _CURRENCIES)
        ):
            scale, end = found, match.end("word")
            continue
        if unit:
            break
        direct = text[end : end + 1] not in " -"
        found_unit = _UNITS.get(small) or _PHRASES.get(small) or (_LETTER_UNITS.get(word, "") if scale == 1 else "")
        if not found_unit or (len(word) == 1 and word.isalpha() and not direct and word not in _LETTER_UNITS):
            break
        unit, end = found_unit, match.end("word")
    return unit, scale, end


def _iter_spelled(text: str, taken: Sequence[tuple[int, int]]) -> Iterable[Figure]:
    for match in islice(_SPELLED_NUMBER.finditer(text), MAX_FIGURES):
        if any(start < match.end() and match.start() < end for start, end in taken):
            continue
        value = _read_spelled(match[0])
        # A scale alone belongs to the digits before it: `5 million`.
        if value is None:
            continue
        unit, scale, end = _read_unit(text, match.end(), "")
        yield Figure(
            text=text[match.start() : end],
            start=match.start(),
            end=end,
            values=(float(value * scale),),
            unit=unit,
            step=_step_of_integer(str(value * scale)),
            is_scaled=value * scale >= 1000,
            before=text[max(0, match.start() - _BEFORE_CHARACTERS) : match.start()],
            is_spelled=True,
        )
    for match in islice(_WORD_FIGURE.finditer(text), MAX_FIGURES):
        word = match[0].casefold()
        ordinal = word in _ORDINALS
        yield Figure(
            text=match[0],
            start=match.start(),
            end=match.end(),
            values=(float(_ORDINALS[word]) if ordinal else _FRACTIONS[word],),
            unit="" if ordinal else _PERCENT,
            kind="ordinal" if ordinal else "plain",
            is_spelled=True,
        )


def _read_spelled(written: str) -> int | None:
    total = current = 0
    words = [word for word in written.casefold().replace("-", " ").split() if word != "and"]
    if not words or words[0] in _SCALES or words[0] == "hundred":
        return None
    for word in words:
        if word == "hundred":
            current = max(1, current) * 100
        elif word in _SCALES:
            total, current = total + max(1, current) * _SCALES[word], 0
        elif word == "dozen":
            current = max(1, current) * 12
        else:
            current += _SMALL[word]
    return total + current


def _share_units(text: str, found: Sequence[Figure]) -> list[Figure]:
    """Give the figures of a range or list the unit of its end: `10 to 12 %`, `$5 or 10 million`."""
    shared = [*found]
    for place in range(len(shared) - 2, -1, -1):
        one, following = shared[place], shared[place + 1]
        between = text[one.end : following.start]
        if len(between) > len(" oder $") or not _JOIN.match(between) or one.kind != "plain" or one.is_year:
            continue
        if not one.unit and following.unit:
            one = one._replace(unit=following.unit)
        if not one.is_scaled and following.is_scaled and following.step:
            scale = 10.0 ** _exponent(following)
            bigger = tuple(value * scale for value in one.values if isinstance(value, float))
            one = one._replace(values=(*one.values, *bigger), is_scaled=True)
        shared[place] = one
    for place, one in enumerate(shared[1:], 1):
        before = shared[place - 1]
        between = text[before.end : one.start]
        if not one.unit and before.unit in _CURRENCIES and len(between) < len(" oder $") and _JOIN.match(between):
            shared[place] = one._replace(unit=before.unit)
    return shared


def _exponent(figure: Figure) -> int:
    return next((power for power in (12, 9, 6, 3) if figure.step >= 10 ** (power - 3) and figure.is_scaled), 0)


def _iter_dates(text: str) -> Iterable[DateMention]:
    for match in _DATE_WORDS.finditer(text):
        month = MONTHS[match["month"].casefold()]
        day = match["day"] or match["after"]
        year = match["year"]
        if match["day"] and match["after"] and not year:
            day = match["day"]
        name = match["month"]
        alone = not day and not year
        if alone and (not name[0].isupper() or not _is_month_alone(name, text[: match.start()])):
            continue
        if day and not 1 <= int(day) <= 31:
            continue
        yield DateMention(match[0].strip(" .,"), match.start(), match.end(), int(year) if year else None, month,
                          int(day) if day else None)  # fmt: skip
    for match in _DATE_NUMBERS.finditer(text):
        if (date := _numeric_date(match)) is not None:
            yield date


_MONTH_BEFORE = compile_bounded(r"\b(?:in|of|since|until|by|early|late|mid|from|to|last|next|im|Ende|Anfang|Mitte|en|"
                                r"through|during|and)[ -]\Z")  # fmt: skip


def _is_month_alone(name: str, before: str) -> bool:
    """Return whether a name of a month without a day and a year is one: `May` and `March` begin sentences too."""
    return len(name) > 3 - (name == "May") and _MONTH_BEFORE.search(before[-12:]) is not None


def _numeric_date(match: re.Match[str]) -> DateMention | None:
    if match[9]:
        year, month, day = int(match[9]), int(match[10]), int(match[11]) if match[11] else None
        return DateMention(match[0], match.start(), match.end(), year, month, day) if 1 <= month <= 12 else None
    if match[1]:
        year, month, day = int(match[1]), int(match[3]), int(match[4])
        ambiguous = False
    else:
        day, month, year = int(match[5]), int(match[7]), int(match[8])
        year += 2000 if len(match[8]) == 2 else 0
        # Two digits of a year between dots may be a version.
        if len(match[8]) == 2 and match[6] == ".":
            return None
        if month > 12 >= day:
            day, month = month, day
            ambiguous = False
        else:
            ambiguous = day <= 12
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return DateMention(match[0], match.start(), match.end(), year, month, day, ambiguous)


class FigureFault(NamedTuple):
    """A figure or date of a sentence that its passages do not contain, or contain with another bound."""

    kind: Literal["figure", "date", "modality"]
    text: str
    start: int
    lines_say: str = ""
    """What the passages say in its place, if they contradict it."""
    is_opposite: bool = False
    """Whether the sentence has the opposite bound, as `at least` for `at most`; otherwise it leaves a bound out."""


def find_figure_faults(sentence: TextFigures, passages: TextFigures) -> list[FigureFault]:
    """Return the figures and dates of the sentence that the passages do not contain, in order.

    A figure matches in any of its spellings, with the same unit and sign. After `about` and the like, and with a scale
    as in `5.1 million`, a figure in the passages may be more exact. A figure that has to be computed from others is
    absent.
    """
    lookup = _FigureLookup(passages)
    faults = [FigureFault("date", date.text, date.start) for date in sentence.dates if not lookup.has_date(date)]
    for figure in sentence.figures:
        if figure.is_spelled and not _is_spelled_figure(figure):
            continue
        found = lookup.find_matches(figure, sentence.text)
        if not found:
            faults.append(FigureFault("date" if figure.is_year else "figure", figure.text, figure.start))
        elif bound := _contradicted_bound(figure, found):
            text = f"{_bound_text(figure)} {figure.text}".strip()
            faults.append(FigureFault("modality", text, figure.start, bound, is_opposite=bool(_bound(figure))))
    absent = {time for time in sentence.times if time not in passages.times}
    faults += [FigureFault("date", f"{time // 60}:{time % 60:02}", len(sentence.text)) for time in sorted(absent)]
    return sorted(faults, key=lambda fault: fault.start)


def _is_spelled_figure(figure: Figure) -> bool:
    """Return whether a spelled number is a figure of the source rather than the writer's own count."""
    number = figure.values[0]
    return (
        figure.kind == "plain" and isinstance(number, float) and number >= _MIN_SPELLED and figure.text[0] not in "hq"
    )


def _bound(figure: Figure) -> str:
    if _LOWER_BOUND.search(figure.before):
        return "lower"
    return "upper" if _UPPER_BOUND.search(figure.before) else ""


def _bound_text(figure: Figure) -> str:
    match = _LOWER_BOUND.search(figure.before) or _UPPER_BOUND.search(figure.before)
    return match[0].strip() if match else ""


def _contradicted_bound(figure: Figure, found: Sequence[Figure]) -> str:
    """Return the passages' words if all of them give the figure another bound, or a bound that the sentence drops."""
    own = _bound(figure)
    theirs = [_bound(one) for one in found]
    if all(theirs) and own not in theirs:
        return f"{_bound_text(found[0])} {found[0].text}"
    return ""


class _FigureLookup:
    def __init__(self, passages: TextFigures) -> None:
        self._passages = passages
        self._by_value: dict[float | str, list[Figure]] = {}
        for figure in passages.figures:
            for value in figure.values:
                self._by_value.setdefault(round(value, 6) if isinstance(value, float) else value, []).append(figure)
        self._currencies = {figure.unit for figure in passages.figures if figure.unit in _CURRENCIES}
        self._has_percent, self._scales = False, set[float]()
        for match in _HEADER.finditer(passages.text):
            if "%" in match[0] or "cent" in match[0].casefold():
                self._has_percent = True
            elif match[1] or match[2]:
                self._scales.add(float(_SCALES[(match[1] or match[2]).casefold()]))
            if sign := next((sign for sign in match[0] if sign in "$€£¥₹"), ""):
                self._currencies.add(_UNITS[sign])
        years = {date.year for date in passages.dates if date.year}
        years |= {int(match[0]) for match in _YEAR_IN_WORD.finditer(passages.text)}
        self._years = years

    def has_date(self, date: DateMention) -> bool:
        """Return whether the passages contain the date: its day and month together, its year anywhere."""
        if date.year is not None and date.year not in self._years:
            return False
        return any(_fits(date, other) for other in self._passages.dates)

    def find_matches(self, figure: Figure, sentence: str) -> list[Figure]:
        """Return the figures of the passages that are the same; a year in a word or date is returned as it is."""
        numbers = [value for value in figure.values if isinstance(value, float)]
        if (figure.is_year or figure.kind == "decade") and self._has_year(figure, int(numbers[0])):
            return [figure._replace(before="", start=-1)] if _bound(figure) == "" else [figure]
        candidates = [
            one
            for value in figure.values
            for one in self._by_value.get(round(value, 6) if isinstance(value, float) else value, ())
            if self._same_spelling(figure, one)
        ]
        if figure.unit in _CURRENCIES or figure.is_scaled:
            candidates += [
                one
                for value in numbers
                for scale in self._scales
                for one in self._by_value.get(round(value / scale, 6), ())
            ]
        found = [one for one in candidates if self._has_unit(figure, one) and self._has_sign(figure, one, sentence)]
        return found or [
            one
            for one in self._passages.figures
            if _is_rounded(figure, one) and self._has_unit(figure, one) and self._has_sign(figure, one, sentence)
        ]

    def _has_year(self, figure: Figure, year: int) -> bool:
        if figure.kind == "decade":
            return any(year <= one < year + 10 for one in self._years)
        return year in self._years

    @staticmethod
    def _same_spelling(figure: Figure, one: Figure) -> bool:
        """Return False for versions, of which 3.10 is not 3.1."""
        if figure.unit or figure.is_scaled or "." not in figure.text or figure.text == one.text:
            return True
        last = figure.before.split()[-1:] or [""]
        version = last[0][:1].isupper() and figure.before.endswith(" ") and last[0].isalpha()
        return not version and not last[0].casefold().startswith(("version", "release", "section", "chapter"))

    def _has_unit(self, figure: Figure, one: Figure) -> bool:
        if figure.unit == one.unit or any({figure.unit, one.unit} == pair for pair in _SAME_UNIT):
            return True
        if not one.unit:
            if figure.unit in _CURRENCIES:
                return figure.unit in self._currencies
            return figure.unit not in _STRICT or (figure.unit == _PERCENT and self._has_percent)
        return not figure.unit and one.unit not in _STRICT

    def _has_sign(self, figure: Figure, one: Figure, sentence: str) -> bool:
        if figure.negative == one.negative or one.kind == "accounting":
            return True
        text, near = (sentence, figure) if one.negative else (self._passages.text, one)
        window = text[max(0, near.start - _NEAR_CHARACTERS) : near.end + _NEAR_CHARACTERS]
        return _FALL.search(window) is not None


def _is_rounded(figure: Figure, one: Figure) -> bool:
    """Return whether the sentence's figure is the passage's, less exactly, and says so."""
    number, exact = figure.values[0], one.values[0]
    if not isinstance(number, float) or not isinstance(exact, float) or not number or figure.is_year or one.is_year:
        return False
    about = _ABOUT.search(figure.before)
    decimals = figure.is_scaled and not figure.is_spelled and figure.step < number / 9
    if not about and not (decimals and one.step < figure.step):
        return False
    words = about[0].casefold() if about else ""
    distance = exact - number
    if words.startswith(("over", "more", "above", "at least", "exceed", "just over", "mehr", "über", "plus", "más")):
        return 0 < distance < min(figure.step, number / 4)
    if words.startswith(("under", "less", "fewer", "below", "up to", "at most", "just under")):
        return 0 < -distance < min(figure.step, number / 4)
    return abs(distance) <= min(figure.step / 2, number / 10) * (1 + 1e-9)


def _fits(date: DateMention, other: DateMention) -> bool:
    orders = [(date.month, date.day)]
    if date.is_ambiguous or other.is_ambiguous:
        orders.append((date.day, date.month))
    if other.year is not None and date.year is not None and other.year != date.year:
        return False
    return any((month is None or other.month == month) and (day is None or other.day == day) for month, day in orders)
