"""Patterns that see foreign text: compiled here and nowhere else, so that one test can prove each linear in time.

- `compile_bounded`: the standard library's engine, for patterns of constant text in the product's own modules;
- `compile_linear`: RE2, which cannot backtrack;
- `literals`, `transient`: for what is only known when it runs, such as names of people and of documents.

A linter forbids `re`'s functions, `regex` and `re2` elsewhere. What no pattern is needed for is better done by the
methods of strings.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, final, overload

import re2

BOUNDED_PATTERNS: "list[re.Pattern[str] | re.Pattern[bytes]]" = []
"""Every pattern of the product that runs on the backtracking engine, in the order of import. The tests pump each."""
LINEAR_PATTERNS: "list[LinearPattern]" = []
"""Every pattern of the product that runs on RE2, in the order of import. The tests pump these, too: searching for each
of many matches to the end of the text is quadratic on any engine."""
_LINEAR_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
_NOT_IN_UTF_8 = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


@overload
def compile_bounded(source: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def compile_bounded(source: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def compile_bounded(source: str | bytes, flags: int = 0) -> re.Pattern[str] | re.Pattern[bytes]:
    r"""A pattern of the standard library, at the top of a module: for lookarounds, back references and Unicode's `\b`.

    Its repetitions are bounded, possessive (`*+`) or atomic (`(?>…)`), or what follows cannot match within them, so
    that the work from any position is bounded; and where a repetition has no bound, a search does not begin anew within
    what it has passed (a lookbehind, `^`, or a beginning that does not recur).
    """
    # Two calls, since a compiled pattern of either kind is no compiled pattern of one of them to the type checker.
    if isinstance(source, str):
        BOUNDED_PATTERNS.append(of_text := re.compile(source, flags))
        return of_text
    BOUNDED_PATTERNS.append(of_bytes := re.compile(source, flags))
    return of_bytes


def compile_linear(source: str, flags: int = 0) -> "LinearPattern":
    """A pattern of RE2, at the top of a module. See `LinearPattern` for what it does not know."""
    pattern = LinearPattern(source, flags)
    LINEAR_PATTERNS.append(pattern)
    return pattern


def compile_literals(words: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Any of these words, found as the first that fits in their order; without words it matches nothing.

    The work at a position is bounded by the characters of all words.
    """
    return compile_dynamic("|".join(map(re.escape, words)) or r"(?!)", flags)


def compile_dynamic(source: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is put together at run time, and is not kept for the tests: they pump what its maker makes.

    It follows the rules of `compile_bounded`. Escaped words may begin like the gap before them: gaps are possessive and
    bounded.
    """
    return re.compile(source, flags)


@final
class LinearPattern:
    r"""A pattern of RE2: the work for a match is linear in the text, whatever the pattern; it may come from a setting.

    Against `re`: no lookarounds and no back references; `\w \d \s \b` are ASCII's (write `[\p{L}\p{N}_]`, `\p{Nd}`);
    `\s` has no `\v`; `$` without MULTILINE and `\z` are the very end; a bound is 1,000 at most. Large bounds of large
    classes make programs that are slow. Positions are those of the text; a surrogate, which has no UTF-8, counts as
    U+FFFD.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        """Raises ValueError, naming the cause, for a source or a flag that RE2 does not know."""
        if unknown := flags & ~sum(_LINEAR_FLAGS):
            raise ValueError(f"RE2 has no {re.RegexFlag(unknown)!r}")
        options = re2.Options()
        options.log_errors = False
        letters = "".join(letter for flag, letter in _LINEAR_FLAGS.items() if flags & flag)
        prefix = f"(?{letters})" if letters else ""
        self.pattern, self.flags = source, flags
        try:
            self._regexp = re2.compile(prefix + source, options)
        except re2.error as error:
            raise ValueError(f"RE2 cannot read {source!r}: {error}") from error
        self.groupindex, self.groups = self._regexp.groupindex, self._regexp.groups

    def search(self, text: str) -> "LinearMatch | None":
        """The first match anywhere."""
        return next(self.finditer(text), None)

    def match(self, text: str) -> "LinearMatch | None":
        """A match at the beginning."""
        found = self._regexp.match(_encodable(text))
        return LinearMatch(self, text, found) if found else None

    def fullmatch(self, text: str) -> "LinearMatch | None":
        """A match of the whole text."""
        found = self._regexp.fullmatch(_encodable(text))
        return LinearMatch(self, text, found) if found else None

    def finditer(self, text: str) -> "Iterator[LinearMatch]":
        """All matches that do not overlap, in order, each found when it is asked for."""
        for found in self._regexp.finditer(_encodable(text)):
            yield LinearMatch(self, text, found)

    def sub(self, new: "str | Callable[[LinearMatch], str]", text: str) -> str:
        r"""The text with each match replaced. A replacement that is text is taken as it is: there is no `\1`."""
        parts: list[str] = []
        end = 0
        for found in self.finditer(text):
            parts += (text[end : found.start()], new(found) if callable(new) else new)
            end = found.end()
        parts.append(text[end:])
        return "".join(parts)

    def split(self, text: str) -> list[str]:
        """What stands between the matches. Groups are not in it."""
        spans = [(0, 0), *(found.span() for found in self.finditer(text)), (len(text), 0)]
        return [text[end:begin] for (_, end), (begin, _) in pairwise(spans)]


class _Stretch(NamedTuple):
    """A stretch of a text between its two ends."""

    opening: re.Match[str]
    closing: re.Match[str]

    @property
    def inside(self) -> str:
        """What stands between the ends."""
        return self.opening.string[self.opening.end() : self.closing.start()]


@final
class DelimitedPattern:
    """Whatever stands between an opening and the next closing.

    As a pattern, `<a>.*?</a>` would look for the end of the text from each opening of a text that closes none, on any
    engine: that is quadratic.
    """

    def __init__(self, opening: str, closing: str) -> None:
        self._opening, self._closing = compile_bounded(opening), compile_bounded(closing)

    def finditer(self, text: str) -> Iterator[_Stretch]:
        """All stretches, in order. Those that do not end are none."""
        end = 0
        while opening := self._opening.search(text, end):
            closing = self._closing.search(text, opening.end())
            if closing is None:
                return
            yield _Stretch(opening, closing)
            end = closing.end()

    def extract_delimited(self, text: str) -> tuple[list[str], str]:
        """The stretches with their ends, and the text without them."""
        taken, rest, end = list[str](), list[str](), 0
        for opening, closing in self.finditer(text):
            taken.append(text[opening.start() : closing.end()])
            rest.append(text[end : opening.start()])
            end = closing.end()
        return taken, "".join((*rest, text[end:]))


@final
class LinearMatch:
    """One match: like `re.Match`, but that a group which took no part is empty, and begins at -1."""

    __slots__ = ("_groupindex", "_spans", "string")

    def __init__(self, pattern: LinearPattern, string: str, found: "re2.Match") -> None:
        self.string = string
        self._groupindex = pattern.groupindex
        self._spans = [found.span(group) for group in range(pattern.groups + 1)]

    def span(self, group: int | str = 0) -> tuple[int, int]:
        """Beginning and end of a group, by its number or name. Raises IndexError, KeyError."""
        return self._spans[group if isinstance(group, int) else self._groupindex[group]]

    def start(self, group: int | str = 0) -> int:
        """Where a group begins."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """Where a group ends."""
        return self.span(group)[1]

    def __getitem__(self, group: int | str) -> str:
        start, end = self.span(group)
        return self.string[start:end] if start >= 0 else ""

    def groups(self) -> tuple[str, ...]:
        """All groups."""
        return tuple([self[group] for group in range(1, len(self._spans))])

    @property
    def lastgroup(self) -> str | None:
        """The name of the last named group that took part."""
        taken = [name for name, group in self._groupindex.items() if self._spans[group][0] >= 0]
        return max(taken, key=self._groupindex.__getitem__, default=None)


def _encodable(text: str) -> str:
    """As long a text that UTF-8 has."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_NOT_IN_UTF_8)
    return text
