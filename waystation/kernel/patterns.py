"""Compiles every pattern that is matched against untrusted text, so that one test can prove each linear in time.

- `compile_bounded`: the standard library's engine, for constant patterns in the product's own modules;
- `compile_linear`: RE2, which cannot backtrack;
- `compile_literals`, `compile_dynamic`: for what is only known at run time, such as names of people and documents.

A linter forbids `re`'s functions, `regex` and `re2` elsewhere. Use string methods if no pattern is needed.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple, final, overload

import re2

BOUNDED_PATTERNS: "list[re.Pattern[str] | re.Pattern[bytes]]" = []
"""Every product pattern that runs on the backtracking engine, in the order of import. The tests pump each one."""
LINEAR_PATTERNS: "list[LinearPattern]" = []
"""Every product pattern that runs on RE2, in the order of import. The tests pump these too: searching to the end of the
text for each of many matches is quadratic on any engine.
"""
_LINEAR_FLAGS = {re.IGNORECASE: "i", re.MULTILINE: "m", re.DOTALL: "s"}
_NOT_IN_UTF_8 = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


@overload
def compile_bounded(source: str, flags: int = 0) -> re.Pattern[str]: ...
@overload
def compile_bounded(source: bytes, flags: int = 0) -> re.Pattern[bytes]: ...
def compile_bounded(source: str | bytes, flags: int = 0) -> re.Pattern[str] | re.Pattern[bytes]:
    r"""Compile a pattern of the standard library at module level, for lookarounds, back references and Unicode's `\b`.

    Its repetitions must be bounded, possessive (`*+`) or atomic (`(?>…)`), or what follows must not match within them,
    so that the work from any position is bounded. If a repetition has no bound, a search must not start again within
    what it has passed (use a lookbehind, `^`, or a beginning that does not recur).
    """
    # Two calls: to the type checker, a compiled pattern of either kind is not a compiled pattern of one of them.
    if isinstance(source, str):
        BOUNDED_PATTERNS.append(of_text := re.compile(source, flags))
        return of_text
    BOUNDED_PATTERNS.append(of_bytes := re.compile(source, flags))
    return of_bytes


def compile_linear(source: str, flags: int = 0) -> "LinearPattern":
    """Compile an RE2 pattern at module level. See `LinearPattern` for what it does not support."""
    pattern = LinearPattern(source, flags)
    LINEAR_PATTERNS.append(pattern)
    return pattern


def compile_literals(words: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern that matches any of these words, the first that fits in their order; without words, nothing.

    The work at a position is bounded by the total number of characters of all words.
    """
    return compile_dynamic("|".join(map(re.escape, words)) or r"(?!)", flags)


def compile_dynamic(source: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern that is built at run time.

    It is not recorded for the tests: they pump what its builder produces.

    It follows the rules of `compile_bounded`. Escaped words may begin like the gap before them: gaps are possessive and
    bounded.
    """
    return re.compile(source, flags)


@final
class LinearPattern:
    r"""An RE2 pattern: the work for a match is linear in the text, whatever the pattern, so it may come from a setting.

    Differences from `re`: no lookarounds and no back references; `\w \d \s \b` are ASCII only (write `[\p{L}\p{N}_]`,
    `\p{Nd}`); `\s` does not include `\v`; `$` without MULTILINE and `\z` match at the very end only; the largest bound
    is 1,000. Large bounds of large classes make slow programs. Positions are those of the text; a surrogate, which
    UTF-8 cannot encode, counts as U+FFFD.
    """

    def __init__(self, source: str, flags: int = 0) -> None:
        """Compile the pattern.

        Raises:
            ValueError: RE2 does not support the source or a flag; the message names the cause.
        """
        if unknown := flags & ~sum(_LINEAR_FLAGS):
            raise ValueError(f"RE2 does not support {re.RegexFlag(unknown)!r}")
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
        """Return the first match anywhere."""
        return next(self.finditer(text), None)

    def match(self, text: str) -> "LinearMatch | None":
        """Return a match at the beginning."""
        found = self._regexp.match(_encodable(text))
        return LinearMatch(self, text, found) if found else None

    def fullmatch(self, text: str) -> "LinearMatch | None":
        """Return a match of the whole text."""
        found = self._regexp.fullmatch(_encodable(text))
        return LinearMatch(self, text, found) if found else None

    def finditer(self, text: str) -> "Iterator[LinearMatch]":
        """Yield all non-overlapping matches in order, each one found when it is asked for."""
        for found in self._regexp.finditer(_encodable(text)):
            yield LinearMatch(self, text, found)

    def sub(self, new: "str | Callable[[LinearMatch], str]", text: str) -> str:
        r"""Return the text with each match replaced. A text replacement is taken literally: there is no `\1`."""
        parts: list[str] = []
        end = 0
        for found in self.finditer(text):
            parts += (text[end : found.start()], new(found) if callable(new) else new)
            end = found.end()
        parts.append(text[end:])
        return "".join(parts)

    def split(self, text: str) -> list[str]:
        """Return the parts between the matches, without groups."""
        spans = [(0, 0), *(found.span() for found in self.finditer(text)), (len(text), 0)]
        return [text[end:begin] for (_, end), (begin, _) in pairwise(spans)]


class _Stretch(NamedTuple):
    """A stretch of text between its opening and its closing match."""

    opening: re.Match[str]
    closing: re.Match[str]

    @property
    def inside(self) -> str:
        """The text between the two ends."""
        return self.opening.string[self.opening.end() : self.closing.start()]


@final
class DelimitedPattern:
    """Matches the text between an opening and the next closing pattern.

    As one pattern, `<a>.*?</a>` would search to the end of the text from each opening that is never closed, on any
    engine: that is quadratic.
    """

    def __init__(self, opening: str, closing: str) -> None:
        self._opening, self._closing = compile_bounded(opening), compile_bounded(closing)

    def finditer(self, text: str) -> Iterator[_Stretch]:
        """Yield all closed stretches, in order."""
        end = 0
        while opening := self._opening.search(text, end):
            closing = self._closing.search(text, opening.end())
            if closing is None:
                return
            yield _Stretch(opening, closing)
            end = closing.end()

    def extract_delimited(self, text: str) -> tuple[list[str], str]:
        """Return the stretches including their ends, and the text without them."""
        taken, rest, end = list[str](), list[str](), 0
        for opening, closing in self.finditer(text):
            taken.append(text[opening.start() : closing.end()])
            rest.append(text[end : opening.start()])
            end = closing.end()
        return taken, "".join((*rest, text[end:]))


@final
class LinearMatch:
    """One match, like `re.Match`, except that a group that did not take part is empty and starts at -1."""

    __slots__ = ("_groupindex", "_spans", "string")

    def __init__(self, pattern: LinearPattern, string: str, found: "re2.Match") -> None:
        self.string = string
        self._groupindex = pattern.groupindex
        self._spans = [found.span(group) for group in range(pattern.groups + 1)]

    def span(self, group: int | str = 0) -> tuple[int, int]:
        """Return the start and end of a group, by number or name.

        Raises:
            IndexError: there is no group with that number.
            KeyError: there is no group with that name.
        """
        return self._spans[group if isinstance(group, int) else self._groupindex[group]]

    def start(self, group: int | str = 0) -> int:
        """Return where a group starts."""
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        """Return where a group ends."""
        return self.span(group)[1]

    def __getitem__(self, group: int | str) -> str:
        start, end = self.span(group)
        return self.string[start:end] if start >= 0 else ""

    def groups(self) -> tuple[str, ...]:
        """Return all groups."""
        return tuple([self[group] for group in range(1, len(self._spans))])

    @property
    def lastgroup(self) -> str | None:
        """Name of the last named group that took part."""
        taken = [name for name, group in self._groupindex.items() if self._spans[group][0] >= 0]
        return max(taken, key=self._groupindex.__getitem__, default=None)


def _encodable(text: str) -> str:
    """Return a text of the same length that UTF-8 can encode."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.translate(_NOT_IN_UTF_8)
    return text
