"""How words of others are shown to a model: on one line where they are a name, and in tags that they cannot close; and
as words alone where Markdown is read.

`tagged` alone writes tags: what goes into one is defused there, unless it is `Tagged` itself, and so is each attribute.
The scanners run in linear time, whatever the words are: they go on at the next `<`, never behind it again.
"""

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Literal, final

from waystation.domain.lookalikes import CLOSING, OPENING, READINGS, SEPARATORS
from waystation.domain.plain import plain
from waystation.domain.redaction import PLACEHOLDER
from waystation.patterns import proven

MOST_CHARACTERS = 300
"""Of a name or a title as it is shown."""
TAGS = frozenset({
    *("task", "question", "instructions", "accept", "output", "deadline", "session", "documents", "documentschanged"),
    *("procedures", "procedure", "step", "needs", "context", "result", "recalled", "passage", "toldmeanwhile"),
    *("foreign", "webpage", "webresults", "summary", "reminder", "platform", "subagent"),
    *("plan", "found", "room", "draft", "checked", "query", "status", "siblings", "failed"),
    *("conversation", "wishes", "earlierconversation", "ledger", "restoredfiles", "restoredfile"),
})  # fmt: skip
"""Names of the tags in which models are told something, in letters alone."""
_OPENINGS = proven(f"[{''.join(sorted(OPENING))}]")
_ENDS = frozenset(end for end in OPENING | CLOSING if end.isprintable())
"""Behind one that nobody sees the same tag goes on."""
_Prefix = Literal["none", "word", "separator", "separators", "over"]
"""What was read last of `x:` in `<x:task>` or of `x/`; what stands behind two of them, as in an address, is none."""
_SEPARATED: tuple[_Prefix, _Prefix] = "separator", "separators"
_DEFUSED = "&lt;"
_SAME_OPENING = str.maketrans(dict.fromkeys(OPENING, "<"))
_IN_MARKDOWN = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")", "\n": " ", "\t": " "})
_IN_ATTRIBUTES = str.maketrans({'"': "'"} | dict.fromkeys(OPENING, "(") | dict.fromkeys(CLOSING, ")"))


class Tagged(str):
    """Text whose tags are ours, so that it may stand in other tags as it is.

    Joined with other text it is a mere string again, and defused as one. To make one of a string that has tags of ours
    is to promise that what others wrote in it is defused already.
    """

    __slots__ = ()


def tagged(name: str, /, *parts: str, **attributes: str) -> Tagged:
    """The parts in a tag, each beginning on a line of its own. Every part that is not `Tagged` is defused.

    Raises ValueError for a name that is not among `TAGS`.
    """
    return Tagged("\n".join([_opening(name, attributes), *_inside(parts), f"</{name}>"]))


def tagged_line(name: str, text: str) -> Tagged:
    """The same on one line, without attributes. Raises ValueError likewise."""
    return Tagged("".join([_opening(name, {}), *_inside([text]), f"</{name}>"]))


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """A name or a title, which others chose: without line ends, our tags, and characters that nobody sees."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 4 * most])
    words = " ".join(_defused(shown, TAGS, "(").split())
    return words if len(words) <= most and len(text) <= 4 * most else f"{words[: most - 1]}…"


def attribute(text: str, most: int = MOST_CHARACTERS) -> str:
    """The same as the value of an attribute, between double quotes."""
    return _around_placeholders(one_line(text, most), _IN_ATTRIBUTES)


def without_tags(text: str, *names: str) -> str:
    """The text with every tag of these names (in letters alone; by default all of ours) defused.

    Neither case, white space, characters that nobody sees, letters that look like ours, nor a prefix (`x:`, `x/`) make
    a tag another one.
    """
    return _defused(text, frozenset(names) or TAGS, _DEFUSED)


def comparable(text: str) -> str:
    """The same for a text as it is and as `without_tags` has left it: one is quoted, the other was seen."""
    return text.replace(_DEFUSED, "<").translate(_SAME_OPENING)


def plain_words(text: str) -> str:
    """The text as words of one line that mean nothing in Markdown: no link, image, block or HTML.

    Placeholders stay what they are.
    """
    return _around_placeholders(plain(text), _IN_MARKDOWN)


def _opening(name: str, attributes: Mapping[str, str]) -> str:
    if name.replace("_", "") not in TAGS:
        raise ValueError(f"the tag {name!r} is not in TAGS, so that words of others could close it")
    # A value is not cut: some are read again.
    values = (f' {key}="{attribute(value, len(value))}"' for key, value in attributes.items())
    return f"<{name}{''.join(values)}>"


def _inside(parts: Iterable[str]) -> list[str]:
    """Texts that follow each other are defused as one: a tag may begin in the first and end in the second."""
    groups = groupby(parts, lambda part: isinstance(part, Tagged))
    return [text for ours, group in groups for text in (group if ours else [without_tags("\n".join(group))])]


def _around_placeholders(words: str, table: Mapping[int, str]) -> str:
    begin = 0
    pieces: list[str] = []
    for placeholder in PLACEHOLDER.finditer(words):
        pieces += [words[begin : placeholder.start()].translate(table), placeholder[0]]
        begin = placeholder.end()
    return "".join([*pieces, words[begin:].translate(table)])


def _defused(text: str, wanted: frozenset[str], mark: str) -> str:
    parts: list[str] = []
    start = 0
    for place in _Names(wanted).openings(text):
        # A placeholder of a kind that is called like a tag is none, and must stay what it is.
        if not PLACEHOLDER.match(text, place):
            parts += [text[start:place], mark]
            start = place + 1
    return "".join([*parts, text[start:]])


@final
class _Names:
    """Finds the openings behind which a name of a tag can be read.

    What stands behind an opening is read once, up to the next end that is seen. An opening that nobody sees begins
    anew within that, and counts with the one before it.
    """

    def __init__(self, wanted: frozenset[str]) -> None:
        self._whole = frozenset(_spelled(name) for name in wanted)
        self._begun = frozenset(name[:end] for name in self._whole for end in range(len(name)))

    def openings(self, text: str) -> Iterator[int]:
        """Where they stand, in order."""
        read = 0
        for found in _OPENINGS.finditer(text):
            if found.start() >= read:
                read, named = self._read(text, found.end())
                if named:
                    yield from (one.start() for one in _OPENINGS.finditer(text, found.start(), read))

    def _read(self, text: str, place: int) -> tuple[int, bool]:
        """How far it was read, and whether that ends with a name."""
        states: frozenset[str] | None = frozenset({""})
        prefix: _Prefix = "none"
        while place < len(text) and text[place] not in _ENDS and (states or prefix != "over"):
            sign = text[place]
            before, prefix = prefix, _prefix(prefix, sign)
            if sign in OPENING or (before in _SEPARATED and prefix not in _SEPARATED and not sign.isspace()):
                states |= {""}
            states = self._step(states, sign)
            place += 1
            if states is None:
                return place, True
        return place, False

    def _step(self, states: frozenset[str], sign: str) -> frozenset[str] | None:
        """What is read of names with this sign, too; None: a whole one."""
        stepped: set[str] = set()
        for letters in _read_as(sign):
            for state in states:
                ends = [state + letters[:end] for end in range(1, len(letters) + 1)] or [state]
                if not self._whole.isdisjoint(ends):
                    return None
                stepped.add(ends[-1])
        return self._begun & stepped


def _prefix(before: _Prefix, sign: str) -> _Prefix:
    """What of a prefix was read, with this sign, too."""
    if before == "over":
        return before
    if sign in SEPARATORS:
        return "separators" if before in _SEPARATED else "separator"
    if sign.isspace():
        return "none" if before == "none" else "over"
    if sign.isalnum() or sign in READINGS or sign in "_-.":
        return "over" if before == "separators" else "word"
    return "over" if sign.isprintable() else before


def _read_as(sign: str) -> tuple[str, ...]:
    """Letters of ours that a reader may take it for; an empty string where it may be left out, as it is no letter."""
    if (letters := READINGS.get(sign)) is None:
        letters = (_spelled(unicodedata.normalize("NFKD", sign)),)
    return letters if sign.isalpha() else (*letters, "")


def _spelled(name: str) -> str:
    """In letters alone, `m` as what looks like it."""
    return "".join(one for one in name.lower() if "a" <= one <= "z").replace("m", "rn")
