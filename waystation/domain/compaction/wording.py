"""Whether a text has certain words, however they are spaced, quoted and capitalised."""

from waystation.patterns import proven

_WORD = proven(r"[a-z0-9]+|[^\sa-z0-9]")
_QUOTES = dict.fromkeys(map(ord, "“”„«»「」『』‘’`\"'"))
_ENDS = " .,;:!?…。，、；：！？"


def words_of(text: str) -> str:
    """The words and signs of a text, each between two spaces, without quotation marks: `in` then finds whole words."""
    return f" {' '.join(_WORD.findall(text.casefold().translate(_QUOTES)))} "


def has_words(words: str, text: str) -> bool:
    """Whether `words` (of `words_of`) has those of the text, in a row; how the text ends does not matter."""
    return words_of(text.strip(_ENDS)) in words
