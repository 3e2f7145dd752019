"""How words of others are shown to a model: on one line where they are a name, and in tags that they cannot close; and
as words alone where Markdown is read.

`tagged` alone writes tags: what goes into one is defused there, unless it is `Tagged` itself, and so is each attribute.
The scanners run in linear time, whatever the words are: they go on at the next `<`, never behind it again.
"""

import unicodedata
from collections.abc import Iterable, Mapping
from itertools import groupby

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
_LONGEST = max(map(len, TAGS))
_OPENING = frozenset("<\u2039\u2329\u276e\u27e8\u3008\ufe64\uff1c\u02c2\u1438")
"""What a reader takes for the beginning of a tag."""
_CLOSING = frozenset(">\u203a\u232a\u276f\u27e9\u3009\ufe65\uff1e\u02c3\u1433")
_ENDS = _OPENING | _CLOSING
_OPENINGS = proven(f"[{''.join(sorted(_OPENING))}]")
_LETTERS = str.maketrans(
    "\u0430\u0441\u0501\u0435\u0456\u0458\u043e\u0440\u0455\u0443\u0445\u044c\u03bf\u03c1\u03bd\u03b1\u03b9\u03ba\u03c4\u0442\u043a\u043c\u043d\u0432\u0433\u0131\u0261\u051b\u051d",
    "acdeijopsyxbopvaiktktmhbrigqw",
)
"""Letters of other scripts that look like ours, in lower case."""
_IN_MARKDOWN = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")", "\n": " ", "\t": " "})
_IN_ATTRIBUTES = str.maketrans({'"': "'"} | dict.fromkeys(_OPENING, "(") | dict.fromkeys(_CLOSING, ")"))


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

    Neither case, white space, characters that nobody sees, nor letters that look like ours make a tag another one.
    """
    return _defused(text, frozenset(names) or TAGS, "&lt;")


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
    for place in (found.start() for found in _OPENINGS.finditer(text)):
        # A placeholder of a kind that is called like a tag is none, and must stay what it is.
        if _names_one(text, place + 1, wanted) and not PLACEHOLDER.match(text, place):
            parts += [text[start:place], mark]
            start = place + 1
    return "".join([*parts, text[start:]])


def _names_one(text: str, place: int, wanted: frozenset[str]) -> bool:
    """Whether the letters from here on, up to the next tag, begin with a name."""
    letters = ""
    while place < len(text) and len(letters) < _LONGEST and text[place] not in _ENDS:
        for letter in _letters(text[place]):
            letters += letter
            if letters in wanted:
                return True
        place += 1
    return False


def _letters(character: str) -> str:
    """What a reader takes it for: letters of ours in lower case, or nothing."""
    if character.isascii():
        return character.lower() if character.isalpha() else ""
    plain = unicodedata.normalize("NFKD", character).casefold().translate(_LETTERS)
    return "".join(one for one in plain if one.isascii() and one.isalpha())
