"""Decides whether what the language model takes for a person is one, and finds people that it misses. The model was
trained on news, where a capital is strong evidence.

In prose a name is doubted if all of its words are ordinary ones. In code, comments, logs and configuration, where
unfinished sentences, classes and products have capitals too, more evidence is required: a known given or family name, a
word that announces a person, an address, or a name next to it. A name that was found with more evidence is evidence for
the same name elsewhere in the span.

People that the model misses are found by lists and surroundings: full names, values of a person's fields, parts of a
name that occurs in full. A name before a noun of science is half of a term, and a word that begins a sentence is no
name. The word lists are in files.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded
from waystation.plugins.redaction.detections import Detection


def _words(file_name: str) -> frozenset[str]:
    return frozenset(_text(file_name).split())


def _text(file_name: str) -> str:
    return files("waystation.plugins.redaction").joinpath(file_name).read_text("utf-8")


TECHNOLOGY = _words("technology.txt")
"""Words of software and its manuals: a detection with one of them is not a person or a place."""

NAMES_THAT_ARE_WORDS = _words("names_that_are_words.txt")
"""An ordinary use of one of these words in a text does not mean that it is no name there."""

CITIES = frozenset(_text("places.txt").splitlines())
"""Cities of 100,000 people or more whose names are no ordinary words. From GeoNames (geonames.org, CC BY 4.0)."""

_IN_LATIN_LETTERS = _words("names_in_latin_letters.txt")
GIVEN_NAMES = _words("given_names.txt") | _IN_LATIN_LETTERS
FAMILY_NAMES = _words("family_names.txt") | _IN_LATIN_LETTERS
"""Family names of some seventy countries, in lower case and without accents.

From Faker (faker.readthedocs.io, MIT), which has those of East Asia in their own scripts; common ones in Latin letters
were added, for given and family names.
"""

TERMS, LAWS = _words("terms_with_names.txt"), _words("laws_of_people.txt")
"""Nouns of science after a name that do not concern the person; and those that a discoverer may even own in name."""

ORDINARY_WORDS = _words("ordinary_words.txt")
"""35,000 of the most frequent English words that dictionaries write in lower case, without those that are mostly names.

From symspellpy's frequencies (MIT) and the spelling dictionary of SCOWL (wordlist.sourceforge.net, MIT-like).
"""

NO_SECRETS = _words("no_secrets.txt")
"""Words after `password:` or `the password is` that are no password: types, states, and words of manuals."""

PROSE = NO_SECRETS | _words("words_of_prose.txt")
"""Words that show that several words after `password:` are a sentence or a heading, and no passphrase."""

SAID_OF_SECRETS = PROSE | _words("said_of_secrets.txt")
"""Words after `my password is` that are no password."""


_AROUND = 240
"""Characters before and after a name that are checked for code: about three lines each."""
_MIN_MARKS = 2
_MIN_CHARACTERS, _MIN_STEM_CHARACTERS = 3, 3
_PREFIX = compile_bounded(r"\A(?:un|re|in|non|de|dis|pre|sub|multi|auto|over)")
_BEFORE, _AFTER = 40, 70
_PART = compile_bounded(r"[^\W\d_]+\.?")
_BEGINS_SENTENCE = compile_bounded(r"(?:\A|[\n.!?:;#*/>\"'“‘(-])[ \t]{0,20}+\Z")
_NEXT = compile_bounded(r" (?=[^\W\d_])")
_CODE = compile_bounded(
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
"""Marks that prose does not have: one on the line of a name is enough."""
_PERHAPS_CODE = compile_bounded(r"[abd-z][A-Z]|(?<!M)(?<!Ma)c[A-Z]|\d\d:\d\d:\d\d")
"""CamelCase, which products have too, and times, which chats have."""
_TITLES = (
    r"\b(?:Mr|Mrs|Ms|Miss|Mx|Dr|Prof|Professor|Sir|Dame|Lord|Lady|Herrn?|Frau|Mme|Monsieur|Madame|Se[ñn]ora?|Sra?"
    r"|Signora?|Pani?)\.?\s"
)
_TITLE, _TITLED = compile_bounded(rf"{_TITLES}\Z"), compile_bounded(_TITLES)
_CREDIT = compile_bounded(
    r"(?:\b(?:by|from|thanks\sto|thank\syou|courtesy\sof|due\sto)\s"
    r"|\b(?:authors?|maintainers?|contributors?|committers?|reviewers?|contact|assignee|reporter|credits?|cc|owner|moderator"
    r"|(?:first|last|full|given|family|display|sur)_?name|signed|dear|hello|hi|attn)\b[\s:=\"'*_>-]{1,6}"
    r"|\b(?:users?|customers?|patients?|employees?|colleagues?|todo|fixme|xxx)\b[\s:=\"'*_>(-]{1,6}"
    r"|(?:\(c\)|©|copyright)[\s\d,–-]{1,20}(?:by\s)?)\Z",
    re.IGNORECASE,
)
PERSON_SAYS = (
    r"(?:,?\s(?:said|says|wrote|writes|told|asked|suggested|noticed|reported|pointed|proposed|contributed|thinks|agreed)\b"
    r"|['’]?\s?[<(][\w.+-]{1,64}(?:@|\sat\s)|['’]?\s?<EMAIL_)"
)
_SAID = compile_bounded(PERSON_SAYS)


class _Words(NamedTuple):
    """What is known about the words of a name."""

    parts: Sequence[str]
    """In lower case, without accents and initials."""
    initials: int

    @classmethod
    def of(cls, name: str) -> "_Words":
        """Build it for this name, without acronyms next to the words that are no names."""
        words = [word.rstrip(".") for word in _PART.findall(name)]
        long = [word for word in words if len(word) > 1]
        parts = [
            strip_accents_and_case(word)
            for word in long
            if not word.isupper() or _is_known(strip_accents_and_case(word))
        ]
        return cls(parts or [strip_accents_and_case(word) for word in long], len(words) - len(long))

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
        """Whether they are known as given and family name, though each may also be an ordinary word."""
        return len(self.parts) > 1 and self.parts[0] in GIVEN_NAMES and self.parts[-1] in FAMILY_NAMES


def filter_person_names(text: str, names: Iterable[Detection]) -> Iterator[Detection]:
    """Yield the names that are people's; all of them are in this text, and already have the form of names."""
    doubted, sure, perhaps = list[tuple[Detection, _Words]](), set[str](), set[str]()
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


_SCORE, _STATED = 0.5, 0.95
"""Below and above the language model's 0.85: found by lists, and announced by the text before it."""
_PARTICLES = "van|von|der|den|de|del|della|di|da|do|dos|du|la|le|el|al|bin|ibn|ben|y|e|zu|ter|ten"
CAPITALISED = (
    r"(?:[^\W\d_a-z]\.|[^\W\d_a-z][^\W\d_]{0,40}+"
    r"(?:['’][^\W\d_]{1,40}+|-[^\W\d_a-z][^\W\d_]{0,40}+){0,3}+(?![\w(@/\\`-]))"
)
_FURTHER = rf" (?:(?:{_PARTICLES}) ){{0,2}}(?:[ae]l-)?{CAPITALISED}"
STANDING_APART = r"(?<![\w`/\\.@#$~-])"
_SEVERAL_WORDS = compile_bounded(rf"{STANDING_APART}{CAPITALISED}(?:{_FURTHER}){{1,5}}")
_ONE_WORD = compile_bounded(rf"{STANDING_APART}(?<![\w]['’]){CAPITALISED}")
_WORD_OF_SEVERAL = compile_bounded(CAPITALISED)
_OWNED, _NEW = compile_bounded(r"['’]s\Z"), compile_bounded(r"\b[Nn]ew \Z")
_MAX_FOLLOWING, _MAX_CITY_WORDS = 3, 4
_NO_GIVEN_NAMES, CALLED_AFTER_PEOPLE = _words("no_given_names.txt"), _words("called_after_people.txt")
"""Listed names that other things also begin with; and words after a name that show that it is no person."""


class NameWord(NamedTuple):
    """A capitalised word among others."""

    start: int
    end: int
    part: str
    """In lower case and without accents; the first of those that hyphens join; empty for an acronym."""
    is_possessive: bool
    """Whether an `'s` followed."""

    @classmethod
    def from_span(cls, text: str, start: int, end: int) -> "NameWord":
        """Build it from the word there, without the `'s`."""
        owned = _OWNED.search(text, start, end)
        end = owned.start() if owned else end
        first = _PART.match(text, start, end)
        word = first[0].rstrip(".") if first else ""
        is_acronym = len(word) > 1 and text[start:end].isupper()
        return cls(
            start, end, "" if is_acronym or text[start].islower() else strip_accents_and_case(word), owned is not None
        )

    @property
    def is_initial(self) -> bool:
        """Whether it is one letter."""
        return len(self.part) == 1

    @property
    def is_listed(self) -> bool:
        """Whether it is listed, and is nothing else."""
        return _is_known(self.part) and self.is_unambiguous_name

    @property
    def is_unambiguous_name(self) -> bool:
        """Whether it is known as a name and as nothing else."""
        return not (_is_ordinary(self.part) or self.part.title() in CITIES or self.part in NAMES_THAT_ARE_WORDS)

    @property
    def may_start_name(self) -> bool:
        """Whether it is a given name, or may be an unlisted one."""
        if len(self.part) < _MIN_CHARACTERS - 1 or self.part in _NO_GIVEN_NAMES:
            return False
        if self.part in GIVEN_NAMES:
            return not _is_ordinary(self.part) or self.part in NAMES_THAT_ARE_WORDS
        return len(self.part) >= _MIN_CHARACTERS and self.may_continue_name and not _is_ordinary(self.part)

    @property
    def may_continue_name(self) -> bool:
        """Whether it may be a further part of a name."""
        if not self.part or self.part in TECHNOLOGY:
            return False
        return self.is_initial or _is_known(self.part) or self.is_unambiguous_name


def strip_names(text: str) -> str:
    """Return the text without possible full names, which may be of any language."""
    return _SEVERAL_WORDS.sub(lambda several: "" if several[0][0].isupper() else several[0], text)


def find_listed_people(text: str, start: int, end: int, *, by_all_words: bool = False) -> Iterator[Detection]:
    """Yield full names with a listed given or family name in this span of the text.

    `by_all_words`: the whole name, where a capital may as well begin any other word.
    """
    for several in _SEVERAL_WORDS.finditer(text, start, end):
        words = [NameWord.from_span(text, *word.span()) for word in _WORD_OF_SEVERAL.finditer(text, *several.span())]
        past = 0
        for first, word in enumerate(words):
            if first < past or _NEW.search(text, max(0, word.start - len(" new ")), word.start):
                continue
            past = first + _words_of_city(text, words[first:])
            if past == first and word.may_start_name and (last := _last_of_name(words, first)) > first:
                if by_all_words and not all(one.is_initial or one.is_listed for one in words[first : last + 1]):
                    continue
                yield Detection("PERSON", word.start, words[last].end, _SCORE)
                past = last + 1


def _words_of_city(text: str, words: Sequence[NameWord]) -> int:
    """Return the number of words of a city name that begins with the first word, if it is more than one."""
    for count in range(min(len(words), _MAX_CITY_WORDS), 1, -1):
        if text[words[0].start : words[count - 1].end] in CITIES:
            return count
    return 0


def _last_of_name(words: Sequence[NameWord], first: int) -> int:
    """Return the index of the last word of the name that begins there; `first` itself if there is none."""
    last = first
    for place in range(first + 1, min(first + 1 + _MAX_FOLLOWING, len(words))):
        if words[place - 1].is_possessive or not words[place].may_continue_name:
            break
        last = place
    behind = words[last + 1 : last + 2]
    while last > first and words[last].is_initial:
        last -= 1
    name = words[first : last + 1]
    return last if _is_listed(name) and not _is_called_after(name, behind) else first


def _is_listed(name: Sequence[NameWord]) -> bool:
    first, *rest = name
    if first.part in GIVEN_NAMES and first.is_unambiguous_name:
        return True
    return any(word.part in FAMILY_NAMES and word.is_unambiguous_name for word in rest)


def _is_called_after(name: Sequence[NameWord], behind: Sequence[NameWord]) -> bool:
    """Return whether something is named after a person: `Ada Lovelace Institute`, `Petra Lindqvist Street`.

    People are called Hall and Park too, after given names.
    """
    *givens, last = name
    is_family = last.part in FAMILY_NAMES and all(word.part in GIVEN_NAMES or word.is_initial for word in givens)
    doubtful = (*(givens if is_family else name), *behind)
    return any(word.part in CALLED_AFTER_PEOPLE for word in doubtful)


_STATED_NAME = rf"(?P<name>{CAPITALISED}(?:{_FURTHER}){{0,4}})"
OF_A_PERSON = (
    r"(?:(?:full|display|contact|customer|person|user|legal|given|family|first|last)[_ -]?names?"
    r"|(?:author|owner|user|customer|client|patient|employee|colleague|assignee|reporter|reviewer|maintainer|tenant"
    r"|member|attendee|participant|student|teacher|person|recipient|sender|contact|applicant)s?"
    r"|(?:created|assigned|reported|reviewed|approved|signed|written|owned|updated)[_ -]?(?:by|to)"
    r"|(?:user|person|people|customer|client|patient|employee|author|member|contact)\(name)"
)
_FIELD, _NAME_FIELD = (
    compile_bounded(
        rf"(?<![^\W_])(?i:{key})[\"']?[ \t]{{0,4}}+(?:[:=]|=>)[ \t]{{0,4}}+(?P<quote>[\"']?){_STATED_NAME}(?P=quote)"
        r"(?:(?<=[\"'])|(?=[ \t]{0,20}+(?:[\n\"',;)}\]<(|&]|\Z|(?<=[ \t])[\w.-]{1,40}+=)))"
    )
    for key in (OF_A_PERSON, "name")
)
_LEFT_TO = compile_bounded(rf"\b(?i:todo|fixme|xxx|hack)\({_STATED_NAME}\)")
_INTRODUCED = compile_bounded(rf"\b[Mm]y (?:full )?name(?: is|['’]s) {_STATED_NAME}")


def find_stated_people(text: str, start: int, end: int) -> Iterator[Detection]:
    """Yield the values of a person's fields, without the code around them, and people who are introduced."""
    for pattern in (_FIELD, _NAME_FIELD, _LEFT_TO, _INTRODUCED):
        for match in pattern.finditer(text, start, end):
            words = _Words.of(match["name"])
            introduced = pattern is _INTRODUCED and not words.any_ordinary
            if introduced or _may_be_called(words, of_a_person=pattern is not _NAME_FIELD):
                yield Detection("PERSON", *match.span("name"), _STATED)


def _may_be_called(words: _Words, *, of_a_person: bool) -> bool:
    """Return whether a value may be a person's name: things have name fields too."""
    if not words.parts or TECHNOLOGY.intersection(words.parts):
        return False
    if len(words.parts) + words.initials == 1:
        return words.surely
    if words.all_ordinary:
        return words.given_and_family
    return words.any_known or (of_a_person and not words.any_ordinary)


def find_repeated_names(text: str, people: Iterable[Detection], start: int, end: int) -> Iterator[Detection]:
    """Yield words of these people's names, wherever else they occur in this span of the text."""
    known = {text[word.start : word.end] for person in people for word in _words_kept(text, person)}
    last: Detection | None = None
    for match in _ONE_WORD.finditer(text, start, end) if known else ():
        word = NameWord.from_span(text, *match.span())
        if text[word.start : word.end] not in known:
            continue
        if last and text[last.end : word.start] == " ":
            last = last._replace(end=word.end)
            continue
        if last:
            yield last
        last = Detection("PERSON", word.start, word.end, _SCORE)
    if last:
        yield last


def _words_kept(text: str, person: Detection) -> Iterator[NameWord]:
    words = [
        NameWord.from_span(text, *word.span()) for word in _WORD_OF_SEVERAL.finditer(text, person.start, person.end)
    ]
    for word in words if len(words) > 1 or (words and words[0].is_listed and words[0].part in GIVEN_NAMES) else ():
        is_name = word.is_listed or (word is words[-1] and word.may_continue_name and word.is_unambiguous_name)
        if is_name and len(word.part) >= _MIN_CHARACTERS:
            yield word


_DETERMINER = r"(?:the|an?|this|that|these|those|each|every|all|any|both|my|your|our|their|its)"
_USED_AS_A_WORD = compile_bounded(rf" (?:(?:(?:up|out|off|down|for) )?{_DETERMINER}|[a-z]{{2,20}}ing)\b")


def _begins_sentence(text: str, name: Detection) -> bool:
    return _BEGINS_SENTENCE.search(text, max(0, name.start - _BEFORE), name.start) is not None


def _without_verb(text: str, name: Detection) -> Detection:
    """Remove a leading verb: in `Suppose Alice` and `Ask Kubiak` the language model takes it for a part of the name."""
    first = _PART.match(text, name.start, name.end)
    rest = _NEXT.match(text, first.end(), name.end) if first else None
    if not first or not rest or _TITLE.search(text, name.start, rest.end()):
        return name
    word = strip_accents_and_case(first[0])
    if _is_known(word) or not _is_ordinary(word) or len(word) == 1 or name.end - rest.end() < _MIN_CHARACTERS:
        return name
    begins = _begins_sentence(text, name) or _is_in_code(text, name)
    return name._replace(start=rest.end()) if begins else name


def _is_person(text: str, name: Detection, words: _Words) -> bool:
    if not words.parts or not all(part.isascii() or _is_latin(part) for part in words.parts):
        return True
    if name.score >= _STATED or (words.surely and not words.any_ordinary):
        return True
    if _is_said_to_be_one(text, name, words):
        return True
    if len(words.parts) + words.initials == 1:
        if words.all_ordinary and _begins_sentence(text, name) and _USED_AS_A_WORD.match(text, name.end):
            return False
        return ((not words.all_ordinary or words.any_known) and not _is_in_code(text, name)) or words.surely
    return _several_are_a_person(words, in_code=_is_in_code(text, name))


def _several_are_a_person(words: _Words, *, in_code: bool) -> bool:
    if words.all_ordinary:
        return words.given_and_family or (words.any_known and not in_code)
    if words.surely and (words.parts[0] in GIVEN_NAMES or not in_code):
        return True
    return not words.any_ordinary or not in_code or words.initials > 0


def _is_said_to_be_one(text: str, name: Detection, words: _Words) -> bool:
    before = max(0, name.start - _BEFORE), name.start
    if _TITLE.search(text, *before) or _TITLED.match(text, name.start, name.end):
        return True
    if words.all_ordinary and not words.any_known:
        return False
    return _CREDIT.search(text, *before) is not None or _SAID.match(text, name.end, name.end + _AFTER) is not None


def _is_in_code(text: str, name: Detection) -> bool:
    around = max(0, name.start - _AROUND), name.end + _AROUND
    marks = 0
    for mark in _CODE.finditer(text, *around):
        on_its_line = "\n" not in text[min(mark.start(), name.start) : max(mark.end(), name.end)]
        marks += _MIN_MARKS if on_its_line else 1
        if marks >= _MIN_MARKS:
            return True
    return marks + sum(1 for _ in _PERHAPS_CODE.finditer(text, *around)) >= _MIN_MARKS


def _is_known(part: str) -> bool:
    return part in GIVEN_NAMES or part in FAMILY_NAMES


def _is_ordinary(part: str) -> bool:
    if part in ORDINARY_WORDS:
        return True
    if _is_known(part):
        return False
    stem = _PREFIX.sub("", part.removesuffix("s"))
    return len(stem) >= _MIN_STEM_CHARACTERS and stem in ORDINARY_WORDS


def strip_accents_and_case(word: str) -> str:
    """Return the word in lower case and without accents, as in the lists."""
    folded = word.casefold()
    if folded.isascii():
        return folded
    return "".join(sign for sign in unicodedata.normalize("NFKD", folded) if not unicodedata.combining(sign))


def _is_latin(part: str) -> bool:
    return all("LATIN" in unicodedata.name(sign, "") for sign in part)
