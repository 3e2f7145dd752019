"""Whether what the language model takes for a person is one: it was trained on news, where a capital says much.

In prose a name is doubted where all of its words are ordinary ones. In code, comments, logs and configuration, where
sentences without an end, classes and products have capitals, too, there must be more than that: a known given or family
name, a word that says who follows, an address, or a name beside it. What was found with more evidence is evidence for
the same name elsewhere in the stretch.

Words that the language model takes for names, names that are also words, and places: one list a file.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from waystation.adapters.presidio.finds import Found
from waystation.patterns import proven


def _words(file_name: str) -> frozenset[str]:
    return frozenset(_text(file_name).split())


def _text(file_name: str) -> str:
    return files("waystation.adapters.presidio").joinpath(file_name).read_text("utf-8")


TECHNOLOGY = _words("technology.txt")
"""Words of software and its manuals: a find that contains one is not a person or a place."""

NAMES_THAT_ARE_WORDS = _words("names_that_are_words.txt")
"""That one of them stands in a text as an ordinary word does not mean that it is no name there."""

CITIES = frozenset(_text("places.txt").splitlines())
"""Cities of 100,000 people and more whose names are no ordinary words. From GeoNames (geonames.org, CC BY 4.0)."""

_IN_LATIN_LETTERS = _words("names_in_latin_letters.txt")
GIVEN_NAMES = _words("given_names.txt") | _IN_LATIN_LETTERS
FAMILY_NAMES = _words("family_names.txt") | _IN_LATIN_LETTERS
"""Of people in some seventy countries, in lower case and without accents. From Faker (faker.readthedocs.io, MIT), which
has those of East Asia in their own scripts: common ones in Latin letters are ours, for either.
"""

ORDINARY_WORDS = _words("ordinary_words.txt")
"""35,000 of the most frequent words of English that dictionaries write small, without those that are mostly names. From
symspellpy's frequencies (MIT) and the spelling dictionary of SCOWL (wordlist.sourceforge.net, MIT-like)."""

NO_SECRETS = _words("no_secrets.txt")
"""What stands behind `password:` or `the password is` without being one: types, states, and words of manuals."""

PROSE = NO_SECRETS | _words("words_of_prose.txt")
"""Words of which one shows that several behind `password:` are a sentence or a heading, and no phrase."""

SAID_OF_SECRETS = PROSE | _words("said_of_secrets.txt")
"""What stands behind `my password is` without being it."""


_AROUND = 240
"""Characters before and after a name in which a text shows that it is code: about three lines each."""
_FEWEST_MARKS = 2
_SHORTEST, _SHORTEST_STEM = 3, 3
_PREFIX = proven(r"\A(?:un|re|in|non|de|dis|pre|sub|multi|auto|over)")
_BEFORE, _AFTER = 40, 70
_PART = proven(r"[^\W\d_]+\.?")
_BEGINS_SENTENCE = proven(r"(?:\A|[\n.!?:;#*/>\"'“‘(-])[ \t]{0,20}+\Z")
_NEXT = proven(r" (?=[^\W\d_])")
_CODE = proven(
    r"""
      ^[ \t]{0,40}+(?:
          \#(?![\w#])(?!\ [A-Z][^\n]{0,60}+$) | // | /\* | --\  | ;; | >>>\  | \.\.\.\  | \$\  | @\w | :\w{1,20}:
        | (?:import|from|def|class|return|raise|async|await|func|function|public|private|static|const|let|var|if|elif
          |else|try|except|with|for|while)\b[^\n.]{0,120}[:;{(=]
        | (?:Args|Returns|Raises|Yields|Parameters|Attributes|Examples?|Notes):?[ \t]*+$)
    | [{};][ \t]*+$
    | \w_\w | \w\((?!s\)) | \w\.[a-z]\w{1,40}\( | :: | `\w | -> | => | [=!]= | \w=[\w"'\[{(] | </?\w{1,20}/?>
    | \[\] | \{\} | \b0x[0-9a-f]
    | \b(?:DEBUG|INFO|WARN|WARNING|ERROR|FATAL|CRITICAL|TRACE)\b | \bTraceback\b | \bFile\ "
    """,
    re.MULTILINE | re.VERBOSE,
)
"""What prose does not have: on the line of a name one is enough."""
_PERHAPS_CODE = proven(r"[abd-z][A-Z]|(?<!M)(?<!Ma)c[A-Z]|\d\d:\d\d:\d\d")
"""CamelCase, which products have, too, and times, which chats have."""
_TITLES = (
    r"\b(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Dame|Lord|Lady|Herrn?|Frau|Mme|Monsieur|Madame|Se[ñn]ora?|Sra?"
    r"|Signora?|Pani?)\.?\s"
)
_TITLE, _TITLED = proven(rf"{_TITLES}\Z"), proven(_TITLES)
_CREDIT = proven(
    r"(?:\b(?:by|from|thanks\sto|thank\syou|courtesy\sof|due\sto)\s"
    r"|\b(?:authors?|maintainers?|contributors?|committers?|reviewers?|contact|assignee|reporter|credits?|cc|owner|moderator"
    r"|(?:first|last|full|given|family|display|sur)_?name|signed|dear|hello|hi|attn)\b[\s:=\"'*_>-]{1,6}"
    r"|\b(?:users?|customers?|patients?|employees?|colleagues?|todo|fixme|xxx)\b[\s:=\"'*_>(-]{1,6}"
    r"|(?:\(c\)|©|copyright)[\s\d,–-]{1,20}(?:by\s)?)\Z",
    re.IGNORECASE,
)
_SAID = proven(
    r"(?:,?\s(?:said|says|wrote|writes|told|asked|suggested|noticed|reported|pointed|proposed|contributed|thinks|agreed)\b"
    r"|['’]?\s?[<(][\w.+-]{1,64}(?:@|\sat\s)|['’]?\s?<EMAIL_)"
)


class _Words(NamedTuple):
    """What is known of the words of a name."""

    parts: Sequence[str]
    """In lower case, without accents, and without initials."""
    initials: int

    @classmethod
    def of(cls, name: str) -> "_Words":
        """The words of this name, without acronyms beside them that are no names."""
        words = [word.rstrip(".") for word in _PART.findall(name)]
        long = [word for word in words if len(word) > 1]
        parts = [_plain(word) for word in long if not word.isupper() or _is_known(_plain(word))]
        return cls(parts or [_plain(word) for word in long], len(words) - len(long))

    @property
    def all_ordinary(self) -> bool:
        return all(map(_is_ordinary, self.parts))

    @property
    def any_ordinary(self) -> bool:
        return any(map(_is_ordinary, self.parts))

    @property
    def any_known(self) -> bool:
        return any(_is_known(part) for part in self.parts)

    @property
    def surely(self) -> bool:
        """Whether one of them is known as a name, and as nothing else."""
        return any(_is_known(part) and not _is_ordinary(part) for part in self.parts)

    @property
    def given_and_family(self) -> bool:
        """Whether they are known as that, though each may be an ordinary word, too."""
        return len(self.parts) > 1 and self.parts[0] in GIVEN_NAMES and self.parts[-1] in FAMILY_NAMES


def people(text: str, names: Iterable[Found]) -> Iterator[Found]:
    """Those of the names that are of people; all of them are in this text, and already have the form of names."""
    doubted, sure, perhaps = list[tuple[Found, _Words]](), set[str](), set[str]()
    for whole in names:
        name = _without_verb(text, whole)
        words = _Words.of(text[name.start : name.end])
        if _is_person(text, name, words):
            sure.update(part for part in words.parts if not _is_ordinary(part))
            perhaps.update(part for part in words.parts if _is_known(part))
            yield name
        else:
            doubted.append((name, words))
    for name, words in doubted:
        if sure.intersection(words.parts) or (perhaps.intersection(words.parts) and not _is_in_code(text, name)):
            yield name


def _without_verb(text: str, name: Found) -> Found:
    """`Suppose Alice`, `Ask Kubiak`: the language model takes what begins a sentence for a part of the name."""
    first = _PART.match(text, name.start, name.end)
    rest = _NEXT.match(text, first.end(), name.end) if first else None
    if not first or not rest or _TITLE.search(text, name.start, rest.end()):
        return name
    word = _plain(first[0])
    if _is_known(word) or not _is_ordinary(word) or len(word) == 1 or name.end - rest.end() < _SHORTEST:
        return name
    begins = _BEGINS_SENTENCE.search(text, max(0, name.start - _BEFORE), name.start) or _is_in_code(text, name)
    return name._replace(start=rest.end()) if begins else name


def _is_person(text: str, name: Found, words: _Words) -> bool:
    if not words.parts or not all(part.isascii() or _is_latin(part) for part in words.parts):
        return True
    if words.surely and not words.any_ordinary:
        return True
    if _is_said_to_be_one(text, name, words):
        return True
    if len(words.parts) + words.initials == 1:
        return ((not words.all_ordinary or words.any_known) and not _is_in_code(text, name)) or words.surely
    return _several_are_a_person(words, in_code=_is_in_code(text, name))


def _several_are_a_person(words: _Words, *, in_code: bool) -> bool:
    if words.all_ordinary:
        return words.given_and_family or (words.any_known and not in_code)
    if words.surely and (words.parts[0] in GIVEN_NAMES or not in_code):
        return True
    return not words.any_ordinary or not in_code or words.initials > 0


def _is_said_to_be_one(text: str, name: Found, words: _Words) -> bool:
    before = max(0, name.start - _BEFORE), name.start
    if _TITLE.search(text, *before) or _TITLED.match(text, name.start, name.end):
        return True
    if words.all_ordinary and not words.any_known:
        return False
    return _CREDIT.search(text, *before) is not None or _SAID.match(text, name.end, name.end + _AFTER) is not None


def _is_in_code(text: str, name: Found) -> bool:
    around = max(0, name.start - _AROUND), name.end + _AROUND
    marks = 0
    for mark in _CODE.finditer(text, *around):
        on_its_line = "\n" not in text[min(mark.start(), name.start) : max(mark.end(), name.end)]
        marks += _FEWEST_MARKS if on_its_line else 1
        if marks >= _FEWEST_MARKS:
            return True
    return marks + sum(1 for _ in _PERHAPS_CODE.finditer(text, *around)) >= _FEWEST_MARKS


def _is_known(part: str) -> bool:
    return part in GIVEN_NAMES or part in FAMILY_NAMES


def _is_ordinary(part: str) -> bool:
    if part in ORDINARY_WORDS:
        return True
    if _is_known(part):
        return False
    stem = _PREFIX.sub("", part.removesuffix("s"))
    return len(stem) >= _SHORTEST_STEM and stem in ORDINARY_WORDS


def _plain(word: str) -> str:
    """In lower case and without accents, as the lists have it."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    return "".join(sign for sign in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(sign))


def _is_latin(part: str) -> bool:
    return all("LATIN" in unicodedata.name(sign, "") for sign in part)
