"""How words of others are shown to a model: on one line where they are a name, and in tags that they cannot close; and
as words alone where Markdown is read.

The scanners run in linear time, whatever the words are: they go on at the next `<`, never behind it again.
"""

import unicodedata

from waystation.domain.plain import plain
from waystation.domain.redaction import PLACEHOLDER

MOST_CHARACTERS = 300
"""Of a name or a title as it is shown."""
TAGS = frozenset({
    *("task", "question", "instructions", "accept", "output", "deadline", "session", "documents", "documentschanged"),
    *("procedures", "procedure", "step", "needs", "context", "result", "recalled", "passage", "toldmeanwhile"),
    *("foreign", "webpage", "webresults", "summary", "reminder"),
})  # fmt: skip
"""Names of the tags in which agents are told something, in letters alone."""
_LONGEST = max(map(len, TAGS))
_OPENING = frozenset("<\u2039\u2329\u276e\u27e8\u3008\ufe64\uff1c\u02c2\u1438")
"""What a reader takes for the beginning of a tag."""
_CLOSING = frozenset(">\u203a\u232a\u276f\u27e9\u3009\ufe65\uff1e\u02c3\u1433")
_ENDS = _OPENING | _CLOSING
_LETTERS = str.maketrans(
    "\u0430\u0441\u0501\u0435\u0456\u0458\u043e\u0440\u0455\u0443\u0445\u044c\u03bf\u03c1\u03bd\u03b1\u03b9\u03ba\u03c4\u0442\u043a\u043c\u043d\u0432\u0433\u0131\u0261\u051b\u051d",
    "acdeijopsyxbopvaiktktmhbrigqw",
)
"""Letters of other scripts that look like ours, in lower case."""
_IN_MARKDOWN = str.maketrans({"<": "‹", ">": "›", "[": "(", "]": ")", "\n": " ", "\t": " "})


def one_line(text: str, most: int = MOST_CHARACTERS) -> str:
    """A name or a title, which others chose: without line ends, our tags, and characters that nobody sees."""
    shown = "".join(character if character.isprintable() else " " for character in text[: 4 * most])
    words = " ".join(_defused(shown, TAGS, "(").split())
    return words if len(words) <= most and len(text) <= 4 * most else f"{words[: most - 1]}…"


def attribute(text: str, most: int = MOST_CHARACTERS) -> str:
    """The same as the value of an attribute, between double quotes."""
    return one_line(text, most).replace('"', "'")


def without_tags(text: str, *names: str) -> str:
    """The text with every tag of these names (in letters alone; by default all of ours) defused.

    Neither case, white space, characters that nobody sees, nor letters that look like ours make a tag another one.
    """
    return _defused(text, frozenset(names) or TAGS, "&lt;")


def plain_words(text: str) -> str:
    """The text as words of one line that mean nothing in Markdown: no link, image, block or HTML.

    Placeholders stay what they are.
    """
    words, begin = plain(text), 0
    pieces: list[str] = []
    for placeholder in PLACEHOLDER.finditer(words):
        pieces += [words[begin : placeholder.start()].translate(_IN_MARKDOWN), placeholder[0]]
        begin = placeholder.end()
    return "".join([*pieces, words[begin:].translate(_IN_MARKDOWN)])


def _defused(text: str, wanted: frozenset[str], mark: str) -> str:
    parts: list[str] = []
    start = 0
    for place, character in enumerate(text):
        if character in _OPENING and _names_one(text, place + 1, wanted):
            parts += [text[start:place], mark]
            start = place + 1
    return "".join([*parts, text[start:]])


def _names_one(text: str, place: int, wanted: frozenset[str]) -> bool:
    """Whether the letters from here on, up to the next tag, begin with a name."""
    letters = ""
    while place < len(text) and len(letters) < _LONGEST and text[place] not in _ENDS:
        letters += _letters(text[place])
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
