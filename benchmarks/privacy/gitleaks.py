"""The examples of gitleaks: what its rules must find and must not, from the Go source of the rules.

Only literal texts count: those that its generator makes differ each time.
"""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded

_TOKENS = compile_bounded(
    r"(?P<raw>`[^`]*+`)|(?P<quoted>\"(?:[^\"\\\n]|\\.)*+\")|//[^\n]*+|(?P<word>\w++)|(?P<sign>[^\s\w])"
)
_LISTS = {"tps": True, "fps": False}
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_BEGINS = (("[", "]", "string", "{"), ("append", "("))
"""What stands behind `tps =` where examples are written out."""


class RuleExample(NamedTuple):
    """A text of a rule's examples."""

    rule: str
    text: str
    is_secret: bool


def load_examples(folder: Path) -> Iterator[RuleExample]:
    """Those of all rules in a module's folder. Raises FileNotFoundError where it is none."""
    rules = folder / "cmd" / "generate" / "config" / "rules"
    if not rules.is_dir():
        raise FileNotFoundError(f"{folder} has no rules of gitleaks: name the folder of its Go module")
    for file in sorted(rules.glob("*.go")):
        if not file.name.endswith("_test.go"):
            tokens = [match for match in _TOKENS.finditer(file.read_text(encoding="utf-8")) if match.lastgroup]
            words = [(str(match.lastgroup), match[0]) for match in tokens]
            yield from (RuleExample(file.stem, text, is_secret) for text, is_secret in _in(words))


def _in(tokens: Sequence[tuple[str, str]]) -> Iterator[tuple[str, bool]]:
    for place, (_, word) in enumerate(tokens):
        assigned = [text for _, text in tokens[place + 1 : place + 3]]
        if word not in _LISTS or "=" not in assigned:
            continue
        start = place + 2 + assigned.index("=")
        for begin in _BEGINS:
            if tuple(text for _, text in tokens[start : start + len(begin)]) == begin:
                yield from ((text, _LISTS[word]) for text in _literals(tokens, start + len(begin)))


def _literals(tokens: Sequence[tuple[str, str]], start: int) -> Iterator[str]:
    """The texts of a list that are no part of an expression."""
    depth = 1
    for place in range(start, len(tokens)):
        kind, word = tokens[place]
        depth += (word in _OPENING) - (word in _CLOSING)
        if depth == 0:
            return
        around = tokens[place - 1][1] + tokens[place + 1][1]
        if depth == 1 and kind in {"raw", "quoted"} and set(around) <= set("{(,)}"):
            yield word[1:-1] if kind == "raw" else str(ast.literal_eval(word))
