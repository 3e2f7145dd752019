"""Decides whether a passage contains the figures and dates of a sentence."""

import math
import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from waystation.documents.date_mentions import (
    DateMention,
    find_years_in_words,
    has_quarter,
    iter_quarters,
    matches_date,
)
from waystation.documents.derived_figures import CitedFigures, find_calculation, is_constant
from waystation.documents.figure_units import CURRENCIES, PERCENT, SCALES, STRICT_UNITS, UNITS, convert_unit
from waystation.documents.figures import Figure, TextFigures
from waystation.kernel.patterns import compile_bounded

_HEADER = compile_bounded(
    r"(?<![\d ])[ ]*+(?:%|per ?cent|percent)|\bin (?:US\$|[$€£])?[ ]?(thousand|million|billion)\b|"
    r"(?<!\d)(?<!\d[ -])(thousand|million|billion)s(?![^\W_])|[$€£](000)s?\b|\b(Mio|Mrd|Tsd)\b|"
    r"(?<![^\W_])(?:[$€£¥₹]|USD|EUR\b|GBP|dollar|euro|pounds)",
    re.IGNORECASE,
)
"""What gives figures of a table their unit: a sign or word that stands in its head."""
_ABOVE = ("over", "more", "above", "at least", "exceed", "just over", "mehr", "über", "plus", "más")
_BELOW = (
    *("under", "less", "fewer", "below", "up to", "at most", "just under", "nearly", "almost", "close to"),
    *("knapp", "presque", "casi"),
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
_NEAR_CHARACTERS = 60
_EXACT = compile_bounded(
    r"\b(?:exactly|precisely|genau|exactement|exactamente)[ ]?(?:US\$|[$€£¥₹])?[ ]?\Z", re.IGNORECASE
)
_OWN_COUNT = compile_bounded(r"\b(?:top|following|these|nächsten|folgenden) \Z", re.IGNORECASE)
"""What stands before a number that counts what the sentence names."""
_MAX_OWN_COUNT = 12
_UNNAMED_SCALES = (1.0, 10.0**3, 10.0**6, 10.0**9)
"""Factors that the head of a table may give its figures."""
_MIN_UNNAMED_DIGITS = 3
"""Digits of a figure that is not absent if only its scale or currency is."""


class FigureFault(NamedTuple):
    """A figure or date of a sentence that its passages do not contain, or contain with another bound."""

    kind: Literal["figure", "date", "modality", "calculation"]
    """A calculation is a figure that its passages do not contain, but may be computed from theirs."""
    text: str
    start: int
    lines_say: str = ""
    """What the passages say in its place, if they contradict it; the figures of a calculation."""
    is_opposite: bool = False
    """Whether the sentence has the opposite bound, as `at least` for `at most`; otherwise it leaves a bound out."""

    @property
    def is_absent(self) -> bool:
        """Whether the passages do not contain it."""
        return self.kind in {"figure", "date"}


def find_figure_faults(sentence: TextFigures, passages: TextFigures) -> list[FigureFault]:
    """Return the figures and dates of the sentence that the passages do not contain, in order.

    A figure matches in any of its spellings, with the same sign, and with the same unit or a multiple of it. After
    `about` and the like, with a scale as in `5.1 million`, and with a unit, a figure in the passages may be more exact.

    A figure that is computed from others by one operation has no fault if the sentence names these and the passages
    contain them, as in `rose by 5 from 40 to 45`. If only the passages have them, the fault is a calculation.
    """
    lookup = _FigureLookup(passages)
    faults = [FigureFault("date", date.text, date.start) for date in sentence.dates if not lookup.has_date(date)]
    matched: list[Figure] = []
    absent: list[Figure] = []
    for figure in sentence.figures:
        if figure.is_word or _is_enumerator(figure, sentence.text):
            continue
        found = lookup.find_matches(figure, sentence.text)
        if not found:
            absent.append(figure)
            continue
        matched.append(figure)
        if bound := _find_contradicted_bound(figure, found):
            text = f"{_get_bound_text(figure)} {figure.text}".strip()
            faults.append(FigureFault("modality", text, figure.start, bound, is_opposite=bool(_get_bound(figure))))
    faults += _judge_absent(absent, sentence, matched, lookup)
    faults += [
        FigureFault("date", sentence.text[start:end].strip(" ."), start)
        for time, (start, end) in sentence.times.items()
        if time not in passages.times
    ]
    faults += [
        FigureFault("date", one.text, one.start)
        for one in iter_quarters(sentence.text)
        if not has_quarter(passages.text, one.name)
    ]
    return sorted(faults, key=lambda fault: fault.start)


def _is_enumerator(figure: Figure, sentence: str) -> bool:
    """Return whether a number counts parts or items of the sentence itself, as in `(1) … and (2) …` or `the top 3`."""
    number = figure.values[0]
    if figure.unit or not isinstance(number, float) or not 1 <= number <= _MAX_OWN_COUNT or len(figure.text) > 2:
        return False
    closed = sentence[figure.end : figure.end + 2] == ") "
    if figure.before.endswith("(") and closed:
        return figure.text == "1" or "(1) " in sentence
    return _OWN_COUNT.search(figure.before) is not None


def _judge_absent(
    absent: Sequence[Figure], sentence: TextFigures, matched: Sequence[Figure], lookup: "_FigureLookup"
) -> list[FigureFault]:
    """Return the faults of the figures that the passages do not contain."""
    faults: list[FigureFault] = []
    cited = CitedFigures(lookup.passages.figures, lookup.scales)
    for figure in absent:
        if is_constant(figure, sentence.text):
            continue
        if figure.is_year or figure.kind == "decade":
            faults.append(FigureFault("date", figure.text, figure.start))
            continue
        calculation = find_calculation(figure, sentence, matched, cited)
        if calculation is None:
            unscaled = lookup.find_unscaled(figure)
            faults.append(FigureFault("calculation" if unscaled else "figure", figure.text, figure.start, unscaled))
        elif not calculation.is_stated:
            faults.append(FigureFault("calculation", figure.text, figure.start, calculation.text))
    return faults


def _get_bound(figure: Figure) -> str:
    if _LOWER_BOUND.search(figure.before):
        return "lower"
    return "upper" if _UPPER_BOUND.search(figure.before) else ""


def _get_bound_text(figure: Figure) -> str:
    match = _LOWER_BOUND.search(figure.before) or _UPPER_BOUND.search(figure.before)
    return match[0].strip() if match else ""


def _find_contradicted_bound(figure: Figure, found: Sequence[Figure]) -> str:
    """Return the passages' words if all of them give the figure another bound, or a bound that the sentence drops."""
    own = _get_bound(figure)
    theirs = [_get_bound(one) for one in found]
    if all(theirs) and own not in theirs:
        return f"{_get_bound_text(found[0])} {found[0].text}"
    return ""


class _FigureLookup:
    def __init__(self, passages: TextFigures) -> None:
        self.passages = passages
        self._by_value: dict[float | str, list[Figure]] = {}
        for figure in passages.figures:
            for value in figure.values:
                self._by_value.setdefault(round(value, 6) if isinstance(value, float) else value, []).append(figure)
        self._currencies = {figure.unit for figure in passages.figures if figure.unit in CURRENCIES}
        self._has_percent, self.scales = False, set[float]()
        for match in _HEADER.finditer(passages.text):
            word = match[0].casefold()
            if "%" in word or "cent" in word:
                self._has_percent = True
            elif match[3]:
                self.scales.add(1000.0)
            elif scale := match[1] or match[2] or match[4]:
                self.scales.add(float(SCALES[scale.casefold()]))
            if sign := next((sign for sign in word if sign in "$€£¥₹"), UNITS.get(word, "")):
                self._currencies.add(UNITS.get(sign, sign))
        years = {year for date in passages.dates for year in (date.year, date.other_year) if year}
        years |= find_years_in_words(passages.text)
        years |= {int(number) for figure in passages.figures if figure.is_year for number in figure.numbers}
        self._years = years

    def has_date(self, date: DateMention) -> bool:
        """Return whether the passages contain the date: its day and month together, its year anywhere."""
        if date.year is not None and date.year not in self._years:
            return False
        return any(matches_date(date, other) for other in self.passages.dates)

    def find_matches(self, figure: Figure, sentence: str) -> list[Figure]:
        """Return the figures of the passages that are the same; a year in a word or date is returned as it is."""
        if self._has_year(figure):
            return [figure._replace(before="", start=-1)] if _get_bound(figure) == "" else [figure]
        candidates = [
            one
            for value in figure.values
            for one in self._by_value.get(round(value, 6) if isinstance(value, float) else value, ())
            if self._same_spelling(figure, one) and self._has_unit(figure, one)
        ]
        if figure.unit in CURRENCIES or figure.scale > 1:
            candidates += [
                one
                for value in figure.numbers
                for scale in self.scales
                for one in self._by_value.get(round(value / scale, 6), ())
                if self._has_unit(figure, one)
            ]
        for find in (lambda: candidates, lambda: self._find_multiples(figure), lambda: self._find_rounded(figure)):
            if found := [one for one in find() if self._has_sign(figure, one, sentence)]:
                return found
        return []

    def find_unscaled(self, figure: Figure) -> str:
        """Return a figure of the passages that is the same but for its scale or currency, which they do not name.

        The head of a table may name it outside of the cited lines.
        """
        number = figure.values[0]
        if not isinstance(number, float) or figure.digit > number / 10 ** (_MIN_UNNAMED_DIGITS - 1):
            return ""
        if figure.unit in CURRENCIES and figure.unit not in self._currencies and self._currencies:
            return ""
        factors = [1.0] if figure.scale == 1 else [factor for factor in _UNNAMED_SCALES if factor <= figure.scale]
        return (
            next(
                (
                    one.text
                    for one in self.passages.figures
                    if not one.unit and one.scale == 1 and one.numbers and one.kind in {"plain", "accounting"}
                    if any(abs(one.numbers[0] * factor - number) <= figure.digit / 2 * (1 + 1e-9) for factor in factors)
                ),
                "",
            )
            if figure.unit in CURRENCIES or figure.scale > 1
            else ""
        )

    def _find_multiples(self, figure: Figure) -> list[Figure]:
        """Return the figures that are the same in another unit, as 3,000 m for 3 km."""
        if not figure.unit:
            return []
        return [
            one
            for one in self.passages.figures
            if one.unit != figure.unit
            and (factor := convert_unit(one.unit, figure.unit)) is not None
            and any(abs(theirs * factor - own) <= 1e-9 * own for theirs in one.numbers for own in figure.numbers)
        ]

    def _find_rounded(self, figure: Figure) -> list[Figure]:
        """Return the figures that are more exact, also those that have their scale from the head of a table."""
        rounding = _find_rounding(figure)
        if rounding is None:
            return []
        low, high, max_step = rounding
        scales = [1.0, *(self.scales if figure.unit in CURRENCIES or figure.scale > 1 else ())]
        return [
            one
            for one in self.passages.figures
            if one.numbers
            and not one.is_year
            and any(
                low <= one.numbers[0] * scale <= high and one.step * scale < max_step
                for scale in (scales if one.scale == 1 else scales[:1])
            )
            and self._has_unit(figure, one)
        ]

    def _has_year(self, figure: Figure) -> bool:
        if figure.kind == "decade":
            first = int(figure.numbers[0])
            return any(first <= year < first + 10 for year in self._years)
        if figure.kind == "century":
            last = 100 * int(figure.numbers[0])
            return any(last - 100 < year <= last for year in self._years)
        return figure.is_year and any(year in self._years for year in figure.numbers)

    @staticmethod
    def _same_spelling(figure: Figure, one: Figure) -> bool:
        """Return False for versions, of which 3.10 is not 3.1."""
        if figure.unit or figure.scale > 1 or "." not in figure.text or figure.text == one.text:
            return True
        last = figure.before.split()[-1:] or [""]
        version = last[0][:1].isupper() and figure.before.endswith(" ") and last[0].isalpha()
        return not version and not last[0].casefold().startswith(("version", "release", "section", "chapter"))

    def _has_unit(self, figure: Figure, one: Figure) -> bool:
        if convert_unit(figure.unit, one.unit) == 1:
            return True
        if not one.unit:
            if figure.unit in CURRENCIES:
                return figure.unit in self._currencies
            return figure.unit not in STRICT_UNITS or (figure.unit == PERCENT and self._has_percent)
        return not figure.unit and one.unit not in STRICT_UNITS

    def _has_sign(self, figure: Figure, one: Figure, sentence: str) -> bool:
        if figure.negative == one.negative or one.kind == "accounting":
            return True
        text, near = (sentence, figure) if one.negative else (self.passages.text, one)
        window = text[max(0, near.start - _NEAR_CHARACTERS) : near.end + _NEAR_CHARACTERS]
        return _FALL.search(window) is not None


def _find_rounding(figure: Figure) -> tuple[float, float, float] | None:
    """Return between which values a figure of the passages is the sentence's, less exactly, and its largest last digit.

    None if the sentence has to have the figure as it is.
    """
    number = figure.values[0]
    if not isinstance(number, float) or not number or figure.is_year:
        return None
    about = figure.approximation
    has_digits = not figure.is_spelled and figure.step < number / 9 and (figure.scale > 1 or bool(figure.unit))
    if not about and (not has_digits or _EXACT.search(figure.before)):
        return None
    max_step = math.inf if about else figure.step
    if about.startswith(_ABOVE):
        return math.nextafter(number, math.inf), number + min(figure.step, number / 4), max_step
    if about.startswith(_BELOW):
        return number - min(figure.step, number / 4), math.nextafter(number, 0), max_step
    distance = min(figure.step / 2, number / 10) * (1 + 1e-9)
    return number - distance, number + distance, max_step
