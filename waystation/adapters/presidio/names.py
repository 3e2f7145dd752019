"""Which of the names that the language model found are names: it was trained on news, and reads code and manuals here.

What goes: anything in code or glued to it, lower-case words, acronyms, CamelCase, words of software manuals, and single
words that the same text also uses in lower case. A name of a person that looks like one of these stays in the text.
"""

from dataclasses import replace
from functools import cached_property

from waystation.adapters.presidio.found import Found
from waystation.adapters.presidio.vocabulary import NAMES_THAT_ARE_WORDS, TECHNOLOGY
from waystation.patterns import proven

_LAST_OF_NAME = proven(r"['’]s\b|\s-|[\n\t,;:|(){}\[\]<>\"“”*#=+/\\]|  ")
_PARTICLE = r"(?:van|von|der|den|de|del|della|di|da|do|dos|du|la|le|el|al|bin|ibn|ben|of|the|y|e|zu|ter|ten)"
_A_PARTICLE = proven(rf"\A{_PARTICLE}\Z")
_WORD = r"[^\W\d_a-z][^\W\d_]*+(?:['’-][^\W\d_]++)*+\.?"
_SHAPE = proven(rf"\A(?:{_PARTICLE} )?{_WORD}(?: (?:{_PARTICLE} ){{0,2}}{_WORD}){{0,4}}\Z")
_WORD_OF_A_NAME = proven(r"(?<![\w`/\\.@#$~-])[^\W\d_a-z](?:\.|['’-]?[^\W\d_]++)(?![\w(@/\\`])")
_WORDS = proven(r"[^\W\d_]+")
_LOWER_WORD = proven(r"(?<![\w'’@./-])[a-z]{2,30}(?![\w@/]|\.\w)")
_CAMEL_CASE = proven(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_NAME_WITH_INNER_CAPITAL = proven(r"\A(?:Mc|Mac|De|Di|Du|La|Le|Van|Fitz)[A-Z][a-z]+\Z")
_GLUED_BEFORE = proven(r"[`_/\\.@#$~-]$|\w$")
_GLUED_AFTER = proven(r"[`_/\\(@#\w]|[.=:-]\w|\.?\[")


class NameFilter:
    """Tells names from junk within one text."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _lower_words(self) -> frozenset[str]:
        return frozenset(_LOWER_WORD.findall(self._text)) - NAMES_THAT_ARE_WORDS

    def may_be_in(self, start: int, end: int) -> bool:
        """Whether anything there has the form of a name: if not, the language model need not read it."""
        return _WORD_OF_A_NAME.search(self._text, start, end) is not None

    def name_in(self, find: Found) -> Found | None:
        """The part of the find that is a name; None if it is none."""
        cut = _LAST_OF_NAME.search(self._text, find.start, find.end)
        end = cut.start() if cut else find.end
        name = self._text[find.start : end].rstrip()
        end = find.start + len(name)
        if not _SHAPE.match(name) or self._is_glued(find.start, end) or self._is_junk(name):
            return None
        return replace(find, end=end)

    def _is_glued(self, start: int, end: int) -> bool:
        before = _GLUED_BEFORE.search(self._text, max(0, start - 1), start)
        return before is not None or _GLUED_AFTER.match(self._text, end) is not None

    def _is_junk(self, name: str) -> bool:
        words = [word for word in _WORDS.findall(name) if not _A_PARTICLE.match(word)]
        if len(name) < 3 or all(word.isupper() for word in words):
            return True
        if any(_CAMEL_CASE.search(word) and not _NAME_WITH_INNER_CAPITAL.match(word) for word in words):
            return True
        lower = {word.lower() for word in words}
        return bool(lower & (TECHNOLOGY - NAMES_THAT_ARE_WORDS)) or lower <= self._lower_words
