"""Words that a summary ascribes to the user: what no message of the user's has is taken out."""

import re
from collections.abc import Sequence

from waystation.domain.compaction.wording import has_words, words_of
from waystation.domain.value import Value
from waystation.patterns import proven

REMOVED = "[…]"
"""Stands where something was taken out. No gap of a pattern below has its dots, so that what is left on both sides
never makes a quotation.
"""
_LATIN = r"users?|human|(?:be)?nutzer(?:in)?|anwender(?:in)?|utilisat(?:eur|rice)|usuari[oa]"
_WIDE = r"用户|用戶|使用者|ユーザー?|利用者"
_SPEAKER = rf"(?:(?:according to |as )?\b(?:the |der |die |den |el |la |l['’])?\b(?:{_LATIN})\b|{_WIDE})"
_SAYS = (
    r"\b(?:said|says?|saying|ask(?:s|ed|ing)?|wr[io]tes?|told|tells?|states?d?|request(?:s|ed)?|demand(?:s|ed)?|insist\w*"
    r"|wants?|wanted|replie[sd]|answer(?:s|ed)|add(?:s|ed)|confirm(?:s|ed)|approve[sd]|instruct(?:s|ed)|order(?:s|ed)"
    r"|put it|words?|quote"
    r"|sagte?|fragte?|schrieb|bat|bittet|wollte|will|verlangte?|forderte?|meinte?|antwortete|bestätigte?|wünschte?"
    r"|dit|demandé|demande|écrit|voulait|veut|répondu|confirmé|exigé|insisté"
    r"|dijo|dice|pidió|pide|preguntó|escribió|quiere|respondió|confirmó|exigió)\b"
)
_GAP = r"[^\n\"“”„«»「」『』‘….!?]"
_QUOTED = (
    # What is not closed goes to the end of its line. Every alternative matches once it has begun: linear.
    r"(?:\"[^\"\n]*\"?|“[^”\n]*”?|„[^“”\n]*[“”]?|«[^»\n]*»?|「[^」\n]*」?|『[^』\n]*』?"
    r"|‘(?:[^’\n]|’(?=\w))*’?|(?<=[\s:(])'(?:[^'\n]|'(?=\w))*'?|\n[ \t]{0,3}>[^\n]*)"
)
_BEGUN = r"(?=[\"“„«「『‘'\n])"
"""One look instead of one for each kind of quotation."""
_ASCRIBED = proven(
    rf"{_SPEAKER}{_GAP}{{0,40}}?(?:(?:{_SAYS}|[:：]){_GAP}{{0,24}}?|(?:{_WIDE}){_GAP}{{0,36}}?){_BEGUN}({_QUOTED})"
    rf"|(?:{_WIDE}){_GAP}{{0,12}}?{_BEGUN}({_QUOTED})"
    rf"|((?<!\w)(?:\"[^\"\n]{{1,500}}\"|“[^“”\n]{{1,500}}”)),? (?:{_SAYS} (?:by )?{_SPEAKER}"
    rf"|{_SPEAKER} {_SAYS}(?!{_GAP}{{0,24}}[\"“]))",
    re.IGNORECASE,
)
_SPOKEN_LINE = proven(
    rf"^[ \t>*_#•-]{{0,8}}(?:{_LATIN}|{_WIDE})[*_ \t]{{0,4}}[:：][*_ \t]{{0,4}}(?![\"“„«「『‘'])[^\s*_][^\n]*",
    re.IGNORECASE | re.MULTILINE,
)


class Ascribed(Value):
    """A text without words that the user never said."""

    text: str
    removed: tuple[str, ...] = ()
    """What was taken out, each with what ascribed it to the user: kinds and counts."""


def without_invented(text: str, user_said: Sequence[str]) -> Ascribed:
    """The text without quotations and lines that put words into the user's mouth. Twice is as once.

    A quotation that a message of the user's has, whatever its spacing, quotation marks and capitals, stays.
    """
    said: str | None = None
    removed = 0

    def checked(match: re.Match[str]) -> str:
        nonlocal said, removed
        said = words_of("\n".join(user_said)) if said is None else said
        quoted = next(group for group in match.groups() if group is not None)
        if has_words(said, quoted.strip().strip(">\"“”„«»「」『』‘’'").strip()):
            return match[0]
        removed += 1
        return REMOVED

    text = _ASCRIBED.sub(checked, text)
    text, lines = _SPOKEN_LINE.subn(REMOVED, text)
    what = ((removed, "quotations"), (lines, "lines"))
    return Ascribed(
        text=text,
        removed=tuple(f"{kind} in the user's name, never said: {count:,}" for count, kind in what if count),
    )
