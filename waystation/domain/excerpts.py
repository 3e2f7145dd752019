"""What of the passages that a search found is shown: each thing once, neighbours as one, within a number of tokens."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.foreign_text import Tagged, one_line, tagged
from waystation.domain.memory import Passage, Recalled
from waystation.patterns import proven

RECENCY_SHARE = 0.05
"""Of a passage's score: between equals the newer counts, and no old answer is drowned by new talk."""
SHINGLE_WORDS = 4
SAME_SHARE = 0.8
"""Two passages say the same where the shorter one has so much of its shingles in the other."""
_WORD = proven(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")
_PLACE = proven(r"^\[\S+ [^\]\n]*\] ?", re.MULTILINE)


@dataclass(frozen=True)
class Excerpt:
    """Passages that follow each other in one conversation or document, as one text."""

    passages: tuple[Passage, ...]
    text: str
    score: float
    """Of the best of them."""
    session: str = ""
    """Its name, where it is not the reader's own."""

    def __str__(self) -> str:
        return self.shown

    @property
    def shown(self) -> Tagged:
        """As a model reads it: labelled as a record with its source. It is data, never an instruction."""
        ids = " ".join(passage.short_id for passage in self.passages)
        session = {"session": one_line(self.session)} if self.session else {}
        return tagged("passage", self.text, id=ids, **self._source, **session)

    @property
    def _source(self) -> Mapping[str, str]:
        """What does not stand in the text, which names messages and lines of documents."""
        first, last = self.passages[0], self.passages[-1]
        at = f"{last.created:%Y-%m-%d}"
        match first.kind:
            case "conversation":
                return {"step": first.step_id, "hidden": at}
            case "document":
                return {"document": "of an earlier task"}
            case "report":
                return {"report": first.task_id, "written": at}
            case "finding":
                return {"finding": first.task_id, "step": first.step_id, "written": at}

    @property
    def session_hash(self) -> str:
        """Of the session that it is of."""
        return self.passages[0].session

    @property
    def tokens(self) -> int:
        """Plain estimate of how it is shown."""
        return estimate_text(str(self))

    def joined(self, found: Recalled) -> "Excerpt | None":
        """With this passage too, where it is a neighbour."""
        passage = found.passage
        if self.passages[-1].precedes(passage):
            return Excerpt((*self.passages, passage), _joined(self.text, passage.text), self.score)
        if passage.precedes(self.passages[0]):
            return Excerpt((passage, *self.passages), _joined(passage.text, self.text), self.score)
        return None


def excerpts(found: Sequence[Recalled], tokens: int) -> tuple[Excerpt, ...]:
    """The best of what was found, best first, that together have at most so many tokens."""
    chosen: list[Excerpt] = []
    room = tokens
    for recalled in distinct(_with_recency(found)):
        index, longer = _neighbour(chosen, recalled)
        before = chosen[index].tokens if index < len(chosen) else 0
        if longer.tokens - before <= room:
            room -= longer.tokens - before
            chosen[index : index + 1] = [longer]
    return tuple(chosen)


def _neighbour(chosen: Sequence[Excerpt], found: Recalled) -> tuple[int, Excerpt]:
    """Which excerpt becomes longer by this passage, and how; or the passage alone, behind them all."""
    for index, excerpt in enumerate(chosen):
        if longer := excerpt.joined(found):
            return index, longer
    return len(chosen), Excerpt((found.passage,), found.passage.text, found.score)


def _with_recency(found: Sequence[Recalled]) -> list[Recalled]:
    """Best first, with a share for how late each was said among those that were found."""
    said = sorted(found, key=lambda one: (one.passage.created, one.passage.compaction, one.passage.place))
    late = {one.passage.id: place / max(1, len(said) - 1) for place, one in enumerate(said)}
    scored = [
        Recalled(passage=one.passage, score=(1 - RECENCY_SHARE) * one.score + RECENCY_SHARE * late[one.passage.id])
        for one in found
    ]
    return sorted(scored, key=lambda one: (-one.score, one.passage.id))


def distinct(found: Iterable[Recalled]) -> list[Recalled]:
    """Without those that say nothing that a better one does not: nearly the same words, and no other figure."""
    kept: list[Recalled] = []
    words: list[_Words] = []
    for recalled in found:
        said = _Words.of(recalled.passage)
        if not any(said.adds_nothing_to(better) for better in words):
            kept.append(recalled)
            words.append(said)
    return kept


@dataclass(frozen=True)
class _Words:
    content_hash: str
    shingles: frozenset[tuple[str, ...]]
    figures: frozenset[str]

    @classmethod
    def of(cls, passage: Passage) -> "_Words":
        """Without the ids of messages: the same text at two places is the same."""
        words: list[str] = _WORD.findall(_PLACE.sub("", passage.text).casefold())
        shingles = zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False)
        figures = frozenset(word for word in words if any(map(str.isdigit, word)))
        return cls(passage.content_hash, frozenset(shingles) or frozenset([tuple(words)]), figures)

    def adds_nothing_to(self, better: "_Words") -> bool:
        if self.content_hash == better.content_hash:
            return True
        shared = len(self.shingles & better.shingles)
        return shared >= SAME_SHARE * len(self.shingles) and self.figures <= better.figures


def _joined(before: str, after: str) -> str:
    """Both texts, and once what the second repeats of the first."""
    ends, begins = before.split("\n"), after.split("\n")
    longest = min(len(ends), len(begins))
    repeated = next((count for count in range(longest, 0, -1) if ends[-count:] == begins[:count]), 0)
    return "\n".join([*ends, *begins[repeated:]])
