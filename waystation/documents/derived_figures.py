"""Decides whether a figure is computed from others: a sum, difference, ratio, change or mean of figures that are cited.

One operation is tried on each pair of figures, and what a sentence spells out as `(8,470 + 30) / 5,395`. Among many
figures a pair that gives the result is found by chance, so the number of pairs is limited by the digits of the result.
"""

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waystation.documents.figure_units import PERCENT, POINTS
from waystation.documents.figures import Figure, TextFigures
from waystation.kernel.patterns import compile_bounded

MAX_OPERANDS = 60
"""Figures of the passages of which pairs are tried, the first of them."""
MAX_CHANCE = 0.5
"""Maximum number of pairs that are expected to give a result by chance."""
MAX_ADDENDS = 12
"""Maximum number of consecutive figures of which the sum is tried."""
_SPREAD = 3.0
"""Results of all pairs spread over so many powers of e, about evenly."""
_MEAN = compile_bounded(r"\b(?:average|averaged|averages|mean|midpoint|Durchschnitt|moyenne|media)\b", re.IGNORECASE)
_CONSTANTS = frozenset({2.0, 3.0, 4.0, 5.0, 10.0, 12.0, 52.0, 100.0, 360.0, 365.0, 366.0, 1000.0})
"""Numbers of a spelled calculation that need not be cited."""
_OPERATORS = {
    "+": "+",
    "-": "-",
    "–": "-",
    "−": "-",
    "×": "*",
    "x": "*",
    "*": "*",
    "·": "*",
    "/": "/",
    "÷": "/",
    ":": "/",
}
_BETWEEN = compile_bounded(r"\A[)\s]{0,8}[-+–−×x*·/÷:][(\s]{0,8}\Z")
_FACTOR = compile_bounded(r"[×x*·/÷][ (]{0,2}\Z")
_MAX_TERMS = 12


class Calculation(NamedTuple):
    """How a figure is computed from others."""

    text: str
    """Its figures, as `40.1 and 45.2`."""
    is_stated: bool
    """Whether the sentence names them."""


class CitedFigures:
    """The figures of the passages, of which pairs are tried."""

    def __init__(self, figures: Sequence[Figure], scales: Sequence[float] | set[float]) -> None:
        """Take the figures of the passages, and the factors that the heads of their tables give them."""
        self.figures = figures
        self.scales = (1.0, *scales)
        self._operands: list[_Operand] | None = None

    @property
    def operands(self) -> "list[_Operand]":
        """The figures that may have been computed with, each once."""
        if self._operands is None:
            self._operands = _list_operands(self.figures)
        return self._operands


class _Operand(NamedTuple):
    text: str
    value: float
    unit: str


def find_calculation(
    figure: Figure, sentence: TextFigures, matched: Sequence[Figure], cited: CitedFigures
) -> Calculation | None:
    """Return how a figure of a sentence is computed from figures that its passages contain; None if it is not.

    Args:
        figure: The figure, which the passages do not contain.
        sentence: The sentence.
        matched: Figures of the sentence that the passages contain.
        cited: The figures of the passages.
    """
    if not figure.numbers or not figure.numbers[0] or figure.kind in {"ordinal", "century"}:
        return None
    target = _Target(figure, _MEAN.search(sentence.text) is not None)
    if (terms := _find_stated_terms(figure, sentence, matched)) and target.is_reached(_evaluate(terms)):
        return Calculation(" ".join(map(str, terms)), is_stated=True)
    for operands, is_stated in ((_list_operands(matched), True), (cited.operands, False)):
        scales = cited.scales if len({*cited.scales}) > 1 else (1.0,)
        if pair := target.find_pair(operands, scales):
            return Calculation(" and ".join(one.text for one in pair), is_stated)
    return None


def is_constant(figure: Figure, sentence: str) -> bool:
    """Return whether a figure is a factor of a calculation that need not be cited, such as 365 or 100."""
    is_factor = _FACTOR.search(figure.before[-3:]) or _FACTOR.search(sentence[figure.end : figure.end + 3].strip()[:1])
    return figure.values[0] in _CONSTANTS and is_factor is not None


def _list_operands(figures: Sequence[Figure]) -> list[_Operand]:
    found: dict[tuple[float, str], _Operand] = {}
    for one in figures:
        if (value := one.signed) and one.kind in {"plain", "accounting"} and not one.is_word:
            found.setdefault((value, one.unit), _Operand(one.text, value, one.unit))
            if len(found) == MAX_OPERANDS:
                break
    return [*found.values()]


class _Target:
    """A figure that may be the result of a calculation."""

    def __init__(self, figure: Figure, is_mean: bool) -> None:
        self._value = figure.numbers[0]
        half = figure.digit / 2
        self._tolerance = (max(figure.digit, figure.step / 2) if figure.approximation else half) * (1 + 1e-9)
        self._unit, self._is_mean = figure.unit, is_mean

    def is_reached(self, result: float | None) -> bool:
        """Return whether a result is the figure, as it is rounded; a percentage may be a share of one."""
        if result is None:
            return False
        return self._is_near(result) or (self._unit == PERCENT and self._is_near(100 * result))

    def _is_near(self, result: float) -> bool:
        return abs(abs(result) - self._value) <= self._tolerance

    def find_pair(self, operands: Sequence[_Operand], scales: Sequence[float]) -> tuple[_Operand, ...]:
        """Return the operands that give the figure; empty if none do, or if many would by chance."""
        tried, found = 0, tuple[_Operand, ...]()
        for pair, result in self._iter_results(operands, scales):
            tried += 1
            if not found and self._is_near(result):
                found = pair
        chance = tried * 2 * self._tolerance / self._value / _SPREAD
        return found if chance <= MAX_CHANCE or len(operands) <= 2 else ()

    def _iter_results(
        self, operands: Sequence[_Operand], scales: Sequence[float]
    ) -> Iterator[tuple[tuple[_Operand, ...], float]]:
        for place, one in enumerate(operands):
            for other in operands[place + 1 :]:
                pair = (one, other)
                if self._may_add(pair):
                    for scale in scales:
                        yield pair, (one.value - other.value) * scale
                        yield pair, (one.value + other.value) * scale
                        if self._is_mean:
                            yield pair, (one.value + other.value) / 2 * scale
                if one.unit == other.unit or not one.unit or not other.unit:
                    yield from ((pair, result) for result in self._iter_ratios(one.value, other.value))
        if self._may_add(operands):
            for first in range(len(operands) - 2):
                for last in range(first + 3, min(len(operands), first + MAX_ADDENDS) + 1):
                    part = tuple(operands[first:last])
                    yield part, sum(one.value for one in part)

    def _may_add(self, operands: Sequence[_Operand]) -> bool:
        """Return whether a sum or difference of the operands may have the unit of the figure."""
        units = {one.unit for one in operands if one.unit}
        if self._unit in {PERCENT, POINTS}:
            return units == {PERCENT}
        return not units or units == {self._unit} or (not self._unit and not units & {PERCENT, POINTS})

    def _iter_ratios(self, one: float, other: float) -> Iterator[float]:
        if self._unit not in {"", PERCENT}:
            return
        factor = 100 if self._unit == PERCENT else 1
        yield factor * one / other
        yield factor * other / one
        if self._unit == PERCENT:
            yield 100 * (other - one) / one
            yield 100 * (one - other) / other


def _find_stated_terms(figure: Figure, sentence: TextFigures, matched: Sequence[Figure]) -> list[float | str]:
    """Return the calculation that stands in the sentence: numbers, operators and brackets; empty if there is none.

    Its numbers are cited, or constants such as 365.
    """
    others = [one for one in sentence.figures if one.start != figure.start and one.numbers]
    allowed = {one.start for one in matched}
    best: list[float | str] = []
    chain: list[float | str] = []
    end = -1
    for one in others:
        between = sentence.text[end : one.start] if end >= 0 else ""
        known = one.start in allowed or one.numbers[0] in _CONSTANTS
        if chain and known and _BETWEEN.match(between) and len(chain) < 4 * _MAX_TERMS:
            chain += _read_between(between)
        else:
            opening = sentence.text[max(0, one.start - 4) : one.start]
            chain = ["("] * opening.count("(") if known else []
        if known:
            chain.append(one.numbers[0])
            end = one.end
        if len([term for term in chain if isinstance(term, float)]) > max(
            1, len([term for term in best if isinstance(term, float)])
        ):
            best = [*chain, *[")"] * sentence.text[one.end : one.end + 4].count(")")]
    return best


def _read_between(between: str) -> list[str]:
    return [sign if sign in "()" else _OPERATORS[sign] for sign in between if not sign.isspace()]


def _evaluate(terms: Sequence[float | str]) -> float | None:
    """Return the value of a calculation; None if it has none. Brackets that are not closed or opened are ignored."""
    values: list[float] = []
    operators: list[str] = []
    for term in terms:
        if not isinstance(term, str):
            values.append(term)
            continue
        while term != "(" and operators and operators[-1] != "(" and _binds(operators[-1], term):
            _apply(operators.pop(), values)
        if term != ")":
            operators.append(term)
        elif operators:
            operators.pop()
    for operator in reversed(operators):
        if operator != "(":
            _apply(operator, values)
    return values[0] if len(values) == 1 and math.isfinite(values[0]) else None


def _apply(operator: str, values: list[float]) -> None:
    right, left = values.pop(), values.pop()
    match operator:
        case "+":
            values.append(left + right)
        case "-":
            values.append(left - right)
        case "*":
            values.append(left * right)
        case _:
            values.append(left / right if right else math.nan)


def _binds(earlier: str, later: str) -> bool:
    """Return whether an operator is applied before one that follows it."""
    return later == ")" or earlier in "*/" or later in "+-"
