"""Finds the names in a sentence, by their capitals, and those that its passages do not mention."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from waystation.documents.date_mentions import MONTHS
from waystation.documents.search_terms import STOP_WORDS
from waystation.kernel.patterns import compile_bounded, compile_dynamic

_WORD = compile_bounded(r"[^\W_]+(?:['’.&-][^\W_]+){0,6}")
_BEGINNING = compile_bounded(r"(?:\A|[.!?:;•|\n“\"«„‘(*>—–]|[^\w]['’])[\s\"“«„*_(]{0,8}\Z")
"""What stands before a word that has its capital because something begins there."""
_PART = compile_bounded(r"[^\W_]+")
_CAPITALISED = compile_bounded(
    r"(?<![^\W\d_])(?:[A-Z][^\W\d_]*+(?:[ \t-]+(?:of|the|and|for|de|des|der|und|du|et|&)(?=[ ]))?[ \t-]*){2,9}"
)
_NO_NAMES_TEXT = """
i i'm i've i'd table tables figure figures section sections chapter page pages appendix annex part item note notes
step source sources document report article paragraph line lines question answer season episode volume phase level
group passage version category type stage class grade yes no mr mrs ms dr prof sir inc ltd llc corp co plc gmbh ag sa
st jr sr act law board internet web company agreement contract party parties schedule exhibit annexure clause
executive tenant landlord buyer seller borrower lender licensee licensor
"""
_NO_NAMES = frozenset(_NO_NAMES_TEXT.split())
_GERMAN_TEXT = """
der die das und ist nicht ein eine einer mit von für auf im dem den des wurde werden sich auch zu
"""
_GERMAN = frozenset(_GERMAN_TEXT.split())
_INFLECTIONS_TEXT = """
s es ism isms ist ists n an ian ns ans ians en e er ers ish ese in a i y d is em um us os ic ic's ern
"""
_INFLECTIONS = frozenset(_INFLECTIONS_TEXT.split()) | {""}
_SAME_NAMES = (
    "france french",
    "britain british uk u.k kingdom england english gb",
    "netherlands dutch holland",
    "spain spanish",
    "usa us u.s u.s.a america american americans",
    "germany german germans deutschland",
    "denmark danish danes",
    "sweden swedish swedes",
    "switzerland swiss",
    "poland polish poles",
    "turkey turkish turks türkiye",
    "greece greek greeks",
    "ireland irish",
    "wales welsh",
    "scotland scottish scots",
    "finland finnish finns",
    "thailand thai",
    "china chinese",
    "japan japanese",
    "portugal portuguese",
    "norway norwegian",
    "europe european eu",
    "un nations",
)
_SAME_NAME = {word: frozenset(words.split()) for words in _SAME_NAMES for word in words.split()}
_MIN_STEM = 4
_MIN_TITLE_WORDS = 4
_MIN_MISSPELLED = 6
"""Letters from which a word that differs in one letter may be the same name."""
_MIN_ABBREVIATED = 3
"""Letters from which an abbreviation may stand for words in small letters, as `ROA` for `return on assets`."""
_MAX_INITIALS = 400
"""Maximum words of a text whose initials are looked at for an abbreviation: in a longer one any three letters follow
one another by chance.
"""
_JOINERS = frozenset(["of", "the", "and", "for", "de", "des", "der", "und", "du", "et"])
"""Words within a name that its abbreviation may leave out."""
_JOIN = compile_bounded(rf"[ ](?:(?:{'|'.join(sorted(_JOINERS))})[ ]){{0,2}}(?:&[ ])?|-|")
_PERIOD = compile_bounded(
    r"(?:(?:FY|CY)['’]?\d{0,4}|Q[1-4]|H[12]|[1-4]Q['’]?\d{0,4}|\d{1,15}(?:[.,]\d{1,15})?(?:[Mm][Nn]|[Bb][Nn]|[TtKk]))+"
)
"""Years, quarters and amounts that look like names: they are checked as dates and figures."""


class NameFault(NamedTuple):
    """Consecutive words of a name that stand nowhere in the passages."""

    text: str
    start: int
    lines_say: str = ""
    """A name of the passages that is spelled nearly the same."""


class NameIndex:
    """The words of passages, by which names are looked up."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = {part for word in _WORD.findall(text) for part in _spellings(word)}
        self._by_stem: dict[str, set[str]] = {}
        for word in self._words:
            self._by_stem.setdefault(word[:_MIN_STEM], set()).add(word)
        self._joined: dict[bool, str] = {}
        self._initials: frozenset[str] | None = None
        self._all_words_initials: tuple[str, str] | None = None

    def contains(self, word: str) -> bool:
        """Return whether the passages mention the word in any inflection, or the words that its letters stand for."""
        spellings = _spellings(word)
        if any(one in self._words or not self._words.isdisjoint(_SAME_NAME.get(one, ())) for one in spellings):
            return True
        folded = spellings[0]
        if len(folded) >= _MIN_STEM and any(
            _is_inflected(folded, o) for o in self._by_stem.get(folded[:_MIN_STEM], ())
        ):
            return True
        parts = [part for part in folded.replace("'", "-").replace(".", "-").split("-") if len(part) > 1]
        if len(parts) > 1 and all(part in self._words for part in parts):
            return True
        if word.removesuffix("s").replace(".", "").isupper() and len(folded) > 1:
            letters = folded.replace(".", "").removesuffix("s" if word.endswith("s") else "")
            if letters in self._words or letters in self._all_initials() or self._abbreviates_words(letters):
                return True
        # `AMERICANEXPRESS_2022_10K` mentions American Express, and `TiO 2` mentions TiO2.
        is_joined = any(sign.isdigit() or sign.isupper() for sign in word[1:])
        return (len(folded) > _MIN_STEM or is_joined) and folded in self._all_joined(is_joined)

    def contains_initials(self, words: Sequence[str]) -> bool:
        """Return whether the passages mention a name of several words by its initials.

        The first word may be none of the name, but have its capital from the beginning of a sentence.
        """
        for name in (words, words[1:]):
            initials = "".join(word[0] for word in name if word not in _JOINERS).casefold()
            if len(initials) > 1 and initials in self._words:
                letters = initials.upper()
                if letters in self._text or ".".join(letters) in self._text:
                    return True
        return False

    def find_misspelled(self, word: str) -> str:
        """Return a word of the passages that differs from this in one letter; empty if there is none."""
        folded = _spellings(word)[0]
        if len(folded) < _MIN_MISSPELLED or not folded.isalpha():
            return ""
        return next(
            (
                other
                for other in sorted(self._words)
                if other[0] == folded[0] and abs(len(other) - len(folded)) <= 1 and _differs_in_one(folded, other)
            ),
            "",
        )

    def contains_last_alone(self, word: str) -> bool:
        """Return whether the passages mention the last word of a name, and nowhere with another name before it."""
        before = self._find_words_before(word)
        return bool(before) and not any(map(_may_be_name, before))

    def contains_only_after_others(self, word: str, first: str) -> bool:
        """Return whether the passages mention the last word of a name only with another name than `first` before it."""
        before = self._find_words_before(word)
        return bool(before) and all(_may_be_name(one) and one.strip(".") != first[0] for one in before)

    def _find_words_before(self, word: str) -> list[str]:
        return [match[1] for match in _compile_word_after(word).finditer(self._text)]

    def _all_joined(self, whole: bool) -> str:
        """Return the long words, or the whole text without its spaces."""
        if whole not in self._joined:
            words = self._text.split() if whole else [one for one in self._words if len(one) > 2 * _MIN_STEM]
            self._joined[whole] = ("" if whole else " ").join(words).casefold()
        return self._joined[whole]

    def _all_initials(self) -> frozenset[str]:
        """The initials of all sequences of capitalised words."""
        if self._initials is None:
            found: set[str] = set()
            for match in _CAPITALISED.finditer(self._text):
                letters = [word[0] for word in _WORD.findall(match[0]) if word[0].isupper()]
                for start in range(len(letters)):
                    for end in range(start + 2, len(letters) + 1):
                        found.add("".join(letters[start:end]).casefold())
            self._initials = frozenset(found)
        return self._initials

    def _abbreviates_words(self, letters: str) -> bool:
        """Return whether consecutive words have these initials, in short passages."""
        if len(letters) < _MIN_ABBREVIATED:
            return False
        if self._all_words_initials is None:
            words = [word.casefold() for word in _PART.findall(self._text[: _MAX_INITIALS * 8])][:_MAX_INITIALS]
            content = "".join(word[0] for word in words if word not in _JOINERS)
            self._all_words_initials = ("".join(word[0] for word in words), content)
        return any(letters in initials for initials in self._all_words_initials)


def _may_be_name(word: str) -> bool:
    return word[:1].isupper() and word.casefold() not in STOP_WORDS


def _compile_word_after(word: str) -> re.Pattern[str]:
    """Return a pattern that finds a word, with the word before it, if one stands directly before it, as group 1."""
    return compile_dynamic(rf"((?:[^\W_]{{1,40}}\.?(?=[ ]))?)[ ]?(?<![^\W_]){re.escape(word)}(?![^\W_])")


def _spellings(word: str) -> list[str]:
    folded = word.casefold().replace("’", "'")
    if not folded.isascii():
        plain = unicodedata.normalize("NFD", folded)
        folded = "".join(sign for sign in plain if not unicodedata.combining(sign))
    bare = folded.removesuffix("'s").removesuffix("'").strip(".")
    found = [bare]
    if "." in bare:
        found.append(bare.replace(".", ""))
    if "-" in bare:
        found += [*bare.split("-"), bare.replace("-", "")]
    return found


def _is_inflected(one: str, other: str) -> bool:
    """Return whether two words differ in their endings only, as `Kenya` and `Kenyan` do."""
    common = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        common += 1
    return common >= max(_MIN_STEM, min(len(one), len(other)) - 1) and {one[common:], other[common:]} <= _INFLECTIONS


def _differs_in_one(one: str, other: str) -> bool:
    """Return whether one letter of two words was replaced, added or left out."""
    start = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    return (
        one[start + 1 :] == other[start + 1 :] or one[start + 1 :] == other[start:] or one[start:] == other[start + 1 :]
    )


def find_name_faults(sentence: str, passages: NameIndex, known: str = "") -> list[NameFault]:
    """Return the names in the sentence that the passages do not mention, in order.

    Args:
        sentence: The sentence. A capital at its beginning is no sign of a name; in German only sequences and
            abbreviations are names, since every noun has a capital.
        passages: The words of its passages.
        known: Text whose names need not stand in the passages, such as the question.
    """
    index = NameIndex(known) if known else None
    sequences = [*_iter_names(sentence)]
    faults: list[NameFault] = []
    for sequence, whole in zip(sequences, _join_names(sequences, sentence), strict=True):
        absent = [
            (word, start)
            for word, start in sequence
            if not passages.contains(word)
            and not (index and index.contains(word))
            and not _is_defined(word, sentence[:start])
        ]
        if not absent or passages.contains_initials(whole) or _is_short(sequence, absent, sentence, passages):
            continue
        first, last = absent[0], absent[-1]
        near = [passages.find_misspelled(word) for word, _ in absent]
        text = sentence[first[1] : last[1] + len(last[0])].removesuffix("'s")
        faults.append(NameFault(text, first[1], " ".join(near) if all(near) else ""))
    return faults


def _join_names(sequences: Sequence[Sequence[tuple[str, int]]], sentence: str) -> list[list[str]]:
    """Return for each sequence all words of the name that it is a part of, as in `International Court of Justice`."""
    joined: list[list[str]] = []
    for place, sequence in enumerate(sequences):
        before = sequences[place - 1][-1] if place else ("", 0)
        gap = sentence[before[1] + len(before[0]) : sequence[0][1]]
        words = [word for word, _ in sequence]
        if place and _JOIN.fullmatch(gap):
            joined[-1] += words
            joined.append(joined[-1])
        else:
            joined.append(words)
    return joined


def _is_defined(word: str, before: str) -> bool:
    """Return whether a sentence says what its abbreviation stands for: `cardiothoracic ratio (CTR)`."""
    letters = word.removesuffix("s").replace(".", "").casefold()
    if not before.endswith("(") or not word.removesuffix("s").isupper():
        return False
    words = [part for part in _PART.findall(before[-200:]) if part.casefold() not in {"of", "the", "and", "for"}]
    return "".join(part[0] for part in words[-len(letters) :]).casefold() == letters or (
        bool(words)
        and words[-1][0].casefold() == letters[-1]
        and any(part[0].casefold() == letters[0] for part in words)
    )


def _is_short(
    sequence: Sequence[tuple[str, int]], absent: Sequence[tuple[str, int]], sentence: str, passages: NameIndex
) -> bool:
    """Return whether the passages call somebody by the last name only, or only the first word of a sentence is absent,
    which may have its capital from there.
    """
    if len(sequence) < 2 or sequence[-1] in absent:
        return False
    if len(absent) == 1 and _BEGINNING.search(sentence[: absent[0][1]][-8:]):
        (first, _), (last, _) = sequence[-2:]
        return len(sequence) > len([first, last]) or not passages.contains_only_after_others(last, first)
    return passages.contains_last_alone(sequence[-1][0])


def _iter_names(sentence: str) -> Iterable[list[tuple[str, int]]]:
    """Yield each sequence of capitalised words, with their places."""
    tokens = [(match[0], match.start()) for match in _WORD.finditer(sentence)]
    letters = [word for word, _ in tokens if word[0].isalpha()]
    capitals = sum(word[0].isupper() for word in letters if word.casefold() not in STOP_WORDS)
    content = sum(word.casefold() not in STOP_WORDS for word in letters)
    # In a heading, or in a text of capitals, capitals say nothing.
    if content >= _MIN_TITLE_WORDS and capitals > 0.8 * content:
        return
    german = sum(word.casefold() in _GERMAN for word in letters) >= 2
    sequence: list[tuple[str, int]] = []
    end = -1
    for place, (word, start) in enumerate(tokens):
        adjoins = sequence and sentence[end:start] in {" ", "-", "", " & "}
        if not adjoins and sequence:
            yield from _names_of(sequence, german)
            sequence = []
        following = [one for one in tokens[place + 1 : place + 2] if sentence[start + len(word) : one[1]] in {" ", "-"}]
        if _is_capitalised(word, sentence[:start], following):
            sequence.append((word, start))
            end = start + len(word)
        elif sequence:
            yield from _names_of(sequence, german)
            sequence = []
    if sequence:
        yield from _names_of(sequence, german)


def _is_capitalised(word: str, before: str, following: Sequence[tuple[str, int]]) -> bool:
    if len(word) < 2 or not word[0].isalnum():
        return False
    inner = any(sign.isupper() for sign in word[1:])
    if not any(sign.isalpha() for sign in word) or _PERIOD.fullmatch(word) or _is_month_and_year(word):
        return False
    if word[0].isdigit():
        # `10K` and `3M` are names, `5m` and `12th` are not.
        return inner and len(word) <= 12 and word[-1].isalpha() and word[-1] not in "KMB"
    if inner or (word[0].isupper() and any(sign.isdigit() for sign in word)):
        return True
    if not word[0].isupper() or word.casefold() in MONTHS:
        return False
    if not _BEGINNING.search(before[-8:]):
        return word.casefold() not in STOP_WORDS
    # The first word is part of a name if the second is one.
    return bool(following) and _begins_name(word, following[0][0])


def _is_month_and_year(word: str) -> bool:
    month, _, year = word.replace("’", "'").partition("'")
    return year.isdecimal() and month.casefold() in MONTHS


def _begins_name(word: str, following: str) -> bool:
    return (
        following[0].isupper() and len(following) > 1 and word.casefold() not in STOP_WORDS | _GERMAN
        and following.casefold() not in MONTHS and not word.endswith("ly")
        and word.casefold() not in _SENTENCE_OPENERS
    )  # fmt: skip


_SENTENCE_OPENERS_TEXT = """
according although both despite during however including like meanwhile since unlike when while whereas yes according
because given many most some several other former current today yesterday founded born additionally moreover
furthermore therefore thus overall finally first second third also even only president king queen actor actress singer
author director
"""
_SENTENCE_OPENERS = frozenset(_SENTENCE_OPENERS_TEXT.split())


def _names_of(sequence: list[tuple[str, int]], german: bool) -> Iterable[list[tuple[str, int]]]:
    names = [
        (word, start)
        for word, start in sequence
        if word.casefold().removesuffix("'s").removesuffix("’s").strip(".") not in _NO_NAMES
    ]
    if german and len(names) < 2:
        names = [(word, start) for word, start in names if any(sign.isupper() for sign in word[1:])]
    if names:
        yield names
