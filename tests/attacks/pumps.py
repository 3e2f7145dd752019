"""Texts that make a pattern work: a beginning, something repeated, and an end that fails, out of its own syntax tree.

What makes a backtracking engine slow is a text that a repetition can take in many ways, or from many places, before
the match fails. So each repetition is given what it takes, behind what stands before it, and before what must not
follow.
"""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import chain, count, islice, permutations
from typing import Any, NamedTuple

_TREE = import_module("re._parser")
_PROBES = "a0A_ -.\n\"'<>/:,;|=[](){}#*!?\\@+$\t~x1fé漢1Z&\x00"
"""What a set of characters that excludes some is asked for, in this order."""
_FAILING = ("", "!", "\x00", "\n", "\n\x00", "a", " ", '"', "<", "é")
_OF_RE2 = ((r"\p{L}", "A-Za-zé漢"), (r"\p{Lu}", "A-ZÉ"), (r"\p{N}", "0-9"), (r"\p{Nd}", "0-9"), (r"\z", r"\Z"))
MAX_REPEATED = 3
MAX_DIGITS = 1_000
"""That one repetition of a number has. `int` reads 4,300."""
_IN_NUMBERS = "0123456789,._+- "
MAX_CHARACTERS = 16
"""Of a set, that texts are made of."""
_UNBOUNDED = 1_000_000
"""Characters."""
Node = tuple[Any, Any]
"""An operation of the parser, and its argument: the parser has no types."""


class Pump(NamedTuple):
    """A text of any length."""

    prefix: str
    repeated: str
    suffix: str

    def text(self, characters: int) -> str:
        """So many characters, or a few less."""
        times = max(1, (characters - len(self.prefix) - len(self.suffix)) // max(1, len(self.repeated)))
        return self.prefix + self.repeated * times + self.suffix


def has_unbounded_lookahead(source: str, flags: int) -> bool:
    """Whether what a pattern looks at ahead has no bound, so that it may be looked for to the end from each place.

    No repetition is there that could be pumped: the text has to lack what is looked for.
    """
    return _looks_far(_TREE.parse(source, flags))


def _looks_far(part: Any) -> bool:
    match part:
        case _TREE.SubPattern():
            return any(
                (str(kind) in {"ASSERT", "ASSERT_NOT"} and argument[1].getwidth()[1] >= _UNBOUNDED)
                or _looks_far(argument)
                for kind, argument in part.data
            )
        case [*inner]:
            return any(_looks_far(one) for one in inner)
        case _:
            return False


def make_pumps(source: str | bytes, flags: int, number: int) -> tuple[Pump, ...]:
    """So many different pumps of a pattern, or as many as it has, the most promising first. The same every time."""
    text, tree = _parsed(source, flags)
    chance = random.Random(repr(text))
    tries = islice(chain(_planned(tree, chance), _drawn(tree, chance)), number * 4)
    return tuple(islice(dict.fromkeys(tries), number))


def matches_unbounded_numbers(source: str | bytes, flags: int) -> bool:
    """Whether a group is a number, with separators perhaps, of as many digits as there are."""
    groups = _groups(_parsed(source, flags)[1])
    return any(_is_number(group) and any(most > MAX_DIGITS for most in _bounds(group)) for group in groups)


def _parsed(source: str | bytes, flags: int) -> tuple[str, list[Node]]:
    """The pattern as the standard library knows it."""
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    for theirs, ours in _OF_RE2:
        text = text.replace(f"[{theirs}]", f"[{ours}]").replace(theirs, ours)
    return text, list(_TREE.parse(text, flags & ~re.UNICODE & ~re.DEBUG))


def _groups(tree: Iterable[Node]) -> Iterator[list[Node]]:
    for node in tree:
        name, argument = str(node[0]), node[1]
        inner = [list(argument[2])] if name.endswith("REPEAT") else _inside(name, argument)
        if name == "SUBPATTERN" and argument[0] is not None:
            yield inner[0]
        for one in inner:
            yield from _groups(one)


def _is_number(tree: Iterable[Node]) -> bool:
    characters = set(_alphabet(tree))
    return "0" <= max(characters, default="") <= "9" and characters <= set(_IN_NUMBERS)


def _bounds(tree: Iterable[Node]) -> Iterator[int]:
    """How often each repetition repeats at most."""
    for node in tree:
        name, argument = str(node[0]), node[1]
        if name.endswith("REPEAT"):
            yield int(argument[1])
        for inner in [list(argument[2])] if name.endswith("REPEAT") else _inside(name, argument):
            yield from _bounds(inner)


def _planned(tree: Sequence[Node], chance: random.Random) -> Iterator[Pump]:
    """Each repetition with its own body, then whole matches, then each character and each pair of them."""
    repeats = list(_repeats(tree, "", chance))
    for suffix in ("\x00", ""):
        for prefix, body in repeats:
            yield Pump(prefix, _example(body, chance), suffix)
            yield Pump("", prefix + _example(body, chance), suffix)
    whole = _example(tree, chance)
    yield from (Pump("", whole, ""), Pump("", whole[:-1] or whole, "\x00"))
    alphabet = list(dict.fromkeys(_alphabet(tree)))[:12]
    for prefix in ("", *dict.fromkeys(prefix for prefix, _ in repeats)):
        yield from (Pump(prefix, character, "\x00") for character in alphabet)
    yield from (Pump("", "".join(pair), "\x00") for pair in permutations(alphabet, 2))


def _drawn(tree: Sequence[Node], chance: random.Random) -> Iterator[Pump]:
    """Without end, as long as the pattern has repetitions or alternatives."""
    for _ in count():
        repeats = list(_repeats(tree, "", chance)) or [("", list(tree))]
        prefix, body = chance.choice(repeats)
        repeated = "".join(_example(body, chance) for _ in range(chance.randint(1, MAX_REPEATED)))
        alphabet = _alphabet(tree)
        if chance.random() < 0.3:
            repeated += chance.choice(alphabet) if alphabet else ""
        if chance.random() < 0.3:
            prefix, repeated = "", prefix + repeated
        if chance.random() < 0.2:
            repeated = repeated.swapcase()
        yield Pump(prefix, repeated or "a", chance.choice(_FAILING))


def _repeats(tree: Iterable[Node], prefix: str, chance: random.Random) -> Iterator[tuple[str, list[Node]]]:
    """Every repetition of more than a few, with a text that matches what stands before it."""
    for node in tree:
        name, argument = str(node[0]), node[1]
        if name.endswith("REPEAT"):
            most, body = argument[1], list(argument[2])
            if int(most) > MAX_REPEATED:
                yield prefix, body
            yield from _repeats(body, prefix, chance)
        else:
            for inner in _inside(name, argument):
                yield from _repeats(inner, prefix, chance)
        if name not in {"ASSERT", "ASSERT_NOT"}:
            prefix += _example([node], chance)


def _inside(name: str, argument: Any) -> list[list[Node]]:
    """The trees that an operation other than a repetition holds."""
    match name:
        case "BRANCH":
            return [list(branch) for branch in argument[1]]
        case "SUBPATTERN":
            return [list(argument[3])]
        case "ATOMIC_GROUP":
            return [list(argument)]
        case "ASSERT" | "ASSERT_NOT":
            return [list(argument[1])]
        case "GROUPREF_EXISTS":
            return [list(branch) for branch in argument[1:] if branch is not None]
        case _:
            return []


def _example(tree: Iterable[Node], chance: random.Random) -> str:
    """A text that the tree matches, but for its assertions."""
    return _joined(tree, {}, chance)


def _joined(tree: Iterable[Node], groups: dict[int, str], chance: random.Random) -> str:
    return "".join(_of(node, groups, chance) for node in tree)


def _of(node: Node, groups: dict[int, str], chance: random.Random) -> str:
    name, argument = str(node[0]), node[1]
    match name:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
            return chance.choice(_characters(node))
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, most, body = argument
            times = chance.randint(int(least), min(int(most), int(least) + 2))
            return "".join(_joined(body, groups, chance) for _ in range(times))
        case "GROUPREF":
            return groups.get(argument, "")
        case "ASSERT" | "ASSERT_NOT" | "AT":
            return ""
        case _:
            text = _joined(chance.choice(_inside(name, argument) or [[]]), groups, chance)
            if name == "SUBPATTERN":
                groups[argument[0] or 0] = text
            return text


def _characters(node: Node) -> list[str]:
    """A few characters that an operation on one of them takes."""
    name, argument = str(node[0]), node[1]
    match name:
        case "LITERAL":
            return [chr(argument)]
        case "NOT_LITERAL":
            return [probe for probe in _PROBES if ord(probe) != argument]
        case "IN":
            return list(_of_set(tuple(argument)))
        case _:
            return list(_PROBES.replace("\n", ""))


@cache
def _of_set(given: tuple[Node, ...]) -> list[str]:
    """A few characters of the set. Some sets are of hundreds of ranges: they are looked at once, and not to the end."""
    members = [(str(kind), value) for kind, value in given]
    negated = any(kind == "NEGATE" for kind, _ in members)
    edges = () if negated else (chr(end) for kind, value in members for end in _edges(kind, value))
    taken = (one for one in chain(edges, _PROBES) if _takes(members, one))
    return list(dict.fromkeys(islice(taken, MAX_CHARACTERS))) or ["\x7f"]


def _edges(kind: str, value: Any) -> tuple[int, ...]:
    match kind:
        case "LITERAL":
            return (value,)
        case "RANGE":
            return (value[0], value[1])
        case _:
            return ()


def _takes(members: Sequence[tuple[str, Any]], character: str) -> bool:
    negated = any(kind == "NEGATE" for kind, _ in members)
    return negated != any(_is(kind, value, character) for kind, value in members)


def _is(kind: str, value: Any, character: str) -> bool:
    match kind:
        case "LITERAL":
            return ord(character) == value
        case "RANGE":
            return value[0] <= ord(character) <= value[1]
        case "CATEGORY":
            word = str(value).removeprefix("CATEGORY_")
            is_kind = {
                "DIGIT": character.isdigit(),
                "SPACE": character.isspace(),
                "WORD": character.isalnum() or character == "_",
            }[word.removeprefix("NOT_")]
            return is_kind != word.startswith("NOT_")
        case _:
            return False


def _alphabet(tree: Iterable[Node]) -> list[str]:
    """The characters that the tree speaks of, in its order."""
    found: list[str] = []
    for node in tree:
        name, argument = str(node[0]), node[1]
        if name in {"LITERAL", "IN"}:
            found += _characters(node)[:4]
        elif name.endswith("REPEAT"):
            found += _alphabet(argument[2])
        else:
            found += [one for inner in _inside(name, argument) for one in _alphabet(inner)]
    return found
