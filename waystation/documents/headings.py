"""Finds the heading that somebody means, however it is numbered, punctuated and spelled, in any script."""

import unicodedata
from collections.abc import Callable, Sequence

from waystation.kernel.patterns import compile_bounded

_SECTION_WORD = (
    r"(?:sections?|chapters?|parts?|abschnitt|kapitel|teil|chapitre|partie|secci[oó]n|cap[ií]tulo|sezione|capitolo"
    r"|раздел|глава|часть|القسم|الفصل|الجزء|第)"
)
_NUMBER = (
    r"(?P<number>\d{1,3}(?:\.\d{1,3}){0,4}|[ivxlc]{1,6}(?=[.):])|[a-zа-я](?=[.)])"
    r"|[一二三四五六七八九十]{1,3}(?=[、.章節节部]))"
)
_NUMBERING = compile_bounded(
    rf"(?:{_SECTION_WORD}(?![^\W\d_])|第)?+\s{{0,3}}+(?:[(\[]?{_NUMBER}(?:[.):\]、]|章|節|节|部|\s|\Z){{1,3}}+)?+[\s:.\-–—]{{0,4}}+"
)
"""A word for a section, and its number, at the beginning of a heading."""
_MARKS = " \t#*_`\"'“”„‟‚‘’«»‹›「」『』《》〈〉:："
ARABIC_VOWEL_SIGNS = dict.fromkeys([0x0640, *range(0x064B, 0x0660), 0x0670])
"""Translation table that removes Arabic vowel signs and the line that stretches words: most texts leave them out."""


def find_heading(headings: Sequence[str], wanted: str) -> int | None:
    """Return the index of the heading that is meant; None if none or several are.

    The heading itself comes first, then one that differs in case, punctuation and form of its characters, then one
    that differs in its numbering, then the one that has this number.
    """
    for form in (str.strip, _fold, _fold_without_number):
        if found := _find_equal(headings, wanted, form):
            return found[0] if len(found) == 1 or form is str.strip else None
    number = _get_number(wanted)
    if not number or _fold_without_number(wanted):
        return None
    numbered = [index for index, heading in enumerate(headings) if _get_number(heading) == number]
    return numbered[0] if len(numbered) == 1 else None


def _find_equal(headings: Sequence[str], wanted: str, form: Callable[[str], str]) -> list[int]:
    meant = form(wanted)
    return [index for index, heading in enumerate(headings) if meant and form(heading) == meant]


def _normalise(heading: str) -> str:
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", heading).casefold())
    return " ".join(folded.translate(ARABIC_VOWEL_SIGNS).split()).strip(_MARKS)


def _fold(heading: str) -> str:
    return _keep_letters(_normalise(heading))


def _fold_without_number(heading: str) -> str:
    normalised = _normalise(heading)
    numbering = _NUMBERING.match(normalised)
    return _keep_letters(normalised[numbering.end() :] if numbering else normalised)


def _get_number(heading: str) -> str:
    numbering = _NUMBERING.match(_normalise(heading))
    return (numbering["number"] or "") if numbering else ""


def _keep_letters(text: str) -> str:
    """Return the letters, digits and the signs that belong to letters."""
    return "".join(sign for sign in text if unicodedata.category(sign)[0] in "LNM")
