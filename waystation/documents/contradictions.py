"""Finds where a sentence says the opposite, less or more than the passage sentence that says nearly the same."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from waystation.kernel.patterns import compile_bounded

_WORD = compile_bounded(r"[^\W_]+(?:['’-][^\W_]+){0,4}")
_NEGATIONS_TEXT = """
not no never none neither nor without cannot nobody nothing hardly nicht kein keine keinen keiner nie niemals ohne ne
pas jamais aucun aucune sans nunca ningún ninguna
"""
_NEGATIONS = frozenset(_NEGATIONS_TEXT.split())
_HEDGES_TEXT = """
may might could possibly perhaps probably likely potentially suggests suggest estimated expected expects plans planned
proposed alleged allegedly appears seems könnte dürfte vielleicht möglicherweise peut-être pourrait quizás podría
"""
_HEDGES = frozenset(_HEDGES_TEXT.split())
_CAN = frozenset(["can", "some", "sometimes", "often"])
"""Words that weaken a sentence as a hedge does."""
_LIMITS_TEXT = """
only solely exclusively always all every must nur ausschließlich immer alle muss seulement toujours tous doit siempre
todos
"""
_LIMITS = frozenset(_LIMITS_TEXT.split())
_EXCEPTIONS = frozenset(["except", "unless", "excluding", "außer", "ausgenommen", "sauf", "excepto", "salvo"])
_OPPOSITES = (
    (
        "increase increases increased increasing rise rises rose risen rising grew grow grows grown growing climbed up",
        "decrease decreases decreased decreasing fall falls fell fallen falling declined decline declines declining "
        "dropped drop drops shrank shrink down reduced reduce reduces",
    ),
    ("higher more greater larger bigger", "lower less fewer smaller"),
    ("above over", "below under"),
    ("before", "after"),
    ("gain gains gained profit profits", "loss losses"),
    ("improved improve improves better", "worsened worsen worsens worse"),
    ("maximum most", "minimum least"),
    ("always", "never"),
    ("include includes included including", "exclude excludes excluded excluding"),
    ("allow allows allowed permit permits permitted",
     "forbid forbids forbade forbidden prohibit prohibits prohibited banned"),
    ("accept accepted accepts approve approved approves", "reject rejected rejects refuse refused refuses"),
    ("win wins won", "lose loses lost"),
    ("open opens opened", "close closes closed"),
    ("buy buys bought acquired purchased", "sell sells sold"),
    ("export exports exported", "import imports imported"),
    ("begin begins began begun started", "ended stopped finished"),
    ("earlier sooner", "later"),
    ("north northern", "south southern"),
    ("east eastern", "west western"),
    ("left", "right"),
    ("positive", "negative"),
    ("success succeed succeeded succeeds", "failure fail failed fails"),
    ("safe", "dangerous unsafe"),
    ("strengthen strengthened strengthens stronger", "weaken weakened weakens weaker"),
    ("true", "false"),
    ("present", "absent"),
    ("mandatory required obligatory", "optional voluntary"),
    ("legal lawful", "illegal unlawful"),
    ("faster", "slower"),
    ("longer", "shorter"),
    ("older", "younger newer"),
    ("hot hotter warm warmer", "cold colder cool cooler"),
    ("gestiegen stieg stiegen steigt erhöht", "gesunken sank sanken sinkt gefallen fiel fielen gesenkt"),
    ("mehr höher", "weniger niedriger"),
    ("augmenté augmente hausse", "diminué diminue baisse"),
    ("aumentó subió", "disminuyó bajó"),
)  # fmt: skip
_SIDES = {
    word: (frozenset(mine.split()), frozenset(theirs.split()))
    for pair in reversed(_OPPOSITES)
    for mine, theirs in (pair, pair[::-1])
    for word in mine.split()
}
"""For each word, the words that mean the same direction and those that mean the opposite."""


class Contradiction(NamedTuple):
    """A word of a sentence, or of its passage, that the other lacks or turns around."""

    kind: Literal["negation", "modality", "wording"]
    text: str
    """The word of the sentence; empty if the sentence lacks a word of the passage."""
    lines_say: str = ""
    """The word of the passage; empty if the passage lacks a word of the sentence."""
    is_opposite: bool = False
    """Whether both cannot be true of the same thing; otherwise the sentence says more than its passage."""


def find_contradictions(sentence: str, aligned: str, passages: str) -> list[Contradiction]:
    """Return the contradictions between a sentence and the aligned sentence of its passages.

    Args:
        sentence: A sentence of a report.
        aligned: The sentence of the passages that has most of its words.
        passages: The text around the aligned sentence, in which limits such as `only` are looked for.
    """
    own, there = _split(sentence), _split(aligned)
    around = frozenset(_split(passages))
    return [
        *_find_negations(own, there),
        *_find_opposites(own, there, around),
        *_find_limits(own, there, around),
    ]


def _split(text: str) -> list[str]:
    return [word.replace("’", "'") for word in _WORD.findall(text.casefold())]


def _is_negation(word: str) -> bool:
    return word in _NEGATIONS or word.endswith("n't")


def _find_negations(own: Sequence[str], there: Sequence[str]) -> Iterator[Contradiction]:
    mine = next((word for word in _without_only(own) if _is_negation(word)), "")
    theirs = next((word for word in _without_only(there) if _is_negation(word)), "")
    if bool(mine) != bool(theirs):
        yield Contradiction("negation", mine, theirs, is_opposite=True)


def _without_only(words: Sequence[str]) -> list[str]:
    """Return the words without a `not` that denies nothing, as in `not only`."""
    return [word for place, word in enumerate(words) if words[place + 1 : place + 2] not in (["only"], ["just"])]


def _find_opposites(own: Sequence[str], there: Sequence[str], around: frozenset[str]) -> Iterator[Contradiction]:
    said = frozenset(own)
    for word in dict.fromkeys(own):
        mine, theirs = _SIDES.get(word, (frozenset[str](), frozenset[str]()))
        other = next((one for one in there if one in theirs), "")
        if other and mine.isdisjoint(around) and theirs.isdisjoint(said):
            yield Contradiction("wording", word, other, is_opposite=True)


def _find_limits(own: Sequence[str], there: Sequence[str], around: frozenset[str]) -> Iterator[Contradiction]:
    said = frozenset(own)
    if (hedge := next((word for word in there if word in _HEDGES), "")) and said.isdisjoint(_HEDGES | _CAN):
        yield Contradiction("modality", "", hedge)
    if limit := next((word for word in own if word in _LIMITS and word not in around), ""):
        yield Contradiction("modality", limit)
    if (exception := next((word for word in there if word in _EXCEPTIONS), "")) and said.isdisjoint(_EXCEPTIONS):
        yield Contradiction("modality", "", exception)
    elif (exception := next((word for word in own if word in _EXCEPTIONS), "")) and around.isdisjoint(_EXCEPTIONS):
        yield Contradiction("modality", exception)
