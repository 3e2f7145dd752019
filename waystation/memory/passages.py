"""Passages of conversations, documents and results, and the selection of excerpts from search results.

Passages are ranked, and their turns are shown: each once, grouped by source in its order, within a number of tokens.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple

from waystation.context.tokens import estimate_text
from waystation.context.transcript import is_question, looks_like_label
from waystation.kernel.identifiers import Identifier
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import SessionScope, TenantScope
from waystation.kernel.value import Value
from waystation.privacy.policy import PLACEHOLDER_PATTERN, restore_originals
from waystation.security.untrusted import (
    SafeMarkup,
    join_safe_markup,
    neutralize_markdown,
    sanitize_line,
    wrap_untrusted,
)

CANDIDATES = 200
"""Passages that a search returns for selecting turns (`select_excerpts`)."""
SHORT_ID_DIGITS = 8
CONTINUATION_SUFFIX = " …"
"""In a label: the turn continues the line of the previous one."""
TURN_LABEL = compile_bounded(r"\[(?P<place>[^\s\[\]]++ [^\[\]\n]*)\] ?")
"""Label at the start of every turn in a passage of a conversation."""
_LINE_ENDS = str.maketrans(dict.fromkeys("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029", " "))
PassageKind = Literal["conversation", "document", "report", "finding"]
MemoryScope = Literal["session", "team"]
"""Whose passages an agent recalls: those of its session, or of all sessions of its tenant."""


class Passage(Value):
    """A redacted piece of text with its source.

    `id` is a uuid5 of run, compaction and position; for a document, of session, name, content and position.
    """

    id: Identifier
    tenant: Identifier
    session: Identifier
    task_id: Identifier
    run_id: Identifier
    step_id: Identifier
    kind: PassageKind = "conversation"
    first_message: Identifier = ""
    last_message: Identifier = ""
    """Empty for documents, reports and findings."""
    document: str = ""
    """Name of the document as agents know it; empty for other passages, whose lines are 0."""
    blob: Identifier = ""
    """Content hash of the document, or of the whole report."""
    first_line: int = 0
    last_line: int = 0
    text: str
    content_hash: Identifier
    created: datetime
    """When it was compacted away, or when its document was indexed."""
    compaction: Identifier = ""
    """Id of the compaction that hid it; empty for documents, reports and findings."""
    place: int = 0
    """Position among the passages of that compaction or document."""
    turn: int | None = None
    """Number of its first turn among those of its compaction. None if the passage is a single turn, as for documents,
    reports and findings.
    """
    heading: str = ""
    """The calls that its turns answer. It is found by them too, but they are in none of its turns."""

    @property
    def short_id(self) -> str:
        """Short id in summaries and recalled passages, like p1a2b3c4d."""
        return f"p{self.id[:SHORT_ID_DIGITS]}"

    @property
    def turns(self) -> tuple["PassageTurn", ...]:
        """Turns in their order."""
        if self.turn is None:
            return (PassageTurn(self, self.place, "", self.text),)
        lines = self.text.translate(_LINE_ENDS).split("\n")
        labelled = [(label["place"], line[label.end() :]) for line in lines if (label := TURN_LABEL.match(line))]
        return tuple(
            PassageTurn(
                self,
                number,
                place.removesuffix(CONTINUATION_SUFFIX),
                text,
                is_continuation=place.endswith(CONTINUATION_SUFFIX),
            )
            for number, (place, text) in enumerate(labelled, self.turn)
        )

    @property
    def unlabelled_text(self) -> str:
        """Text without the labels of its turns."""
        return join_turns(self.turns)

    @property
    def index_text(self) -> str:
        """Text that it is found by. Includes a document's name and lines, but not who spoke and when."""
        if self.kind != "conversation":
            return self.text
        return "\n".join(filter(None, (self.heading, self.unlabelled_text)))

    @property
    def source_key(self) -> tuple[str, ...]:
        """Key of the source that it is part of. A finding is its own source."""
        match self.kind:
            case "document":
                return self.document, self.blob
            case "report":
                return self.task_id, self.blob
            case "conversation" if self.compaction:
                return self.run_id, self.compaction
            case _:
                return (self.id,)


class EmbeddedPassage(Value):
    """A passage with its dense vector; None without a dense embedder (only BM25 finds it then)."""

    passage: Passage
    dense: tuple[float, ...] | None


class MemoryQuery(Value):
    """What to look for, and where: the tenant is always part of the filter. Empty fields admit everything."""

    tenant: str
    session: str | None
    """None: all sessions of the tenant."""
    tasks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """Ids of steps."""
    kinds: tuple[PassageKind, ...] = ()
    excluded_hashes: tuple[str, ...] = ()
    """Content hashes of documents that the searcher has already: nothing of them is returned."""
    since: datetime | None = None
    """Only passages created at this time or later."""
    until: datetime | None = None
    """Only passages created before this time."""
    text: str
    """Query text, redacted by the same rules as the passages."""
    dense: tuple[float, ...] | None
    limit: int = CANDIDATES

    @property
    def reader(self) -> TenantScope:
        """Scope of the passages."""
        everywhere = TenantScope(tenant=self.tenant)
        return everywhere if self.session is None else SessionScope(tenant=self.tenant, session=self.session)

    @property
    def field_filters(self) -> Mapping[str, tuple[str, ...]]:
        """Permitted values of every restricted field of a passage, except times."""
        fields = {
            "tenant": (self.tenant,),
            "session": () if self.session is None else (self.session,),
            "task_id": self.tasks,
            "step_id": self.agents,
            "kind": self.kinds,
        }
        return {field: values for field, values in fields.items() if values}


class ScoredPassageRef(Value):
    """A passage that was found, by its id: its text is in the store."""

    passage_id: str
    score: float
    """From 0 to 1."""


class ScoredPassage(Value):
    """A passage that was found."""

    passage: Passage
    score: float
    """From 0 to 1."""


RECENCY_SHARE = 0.01
"""Share of recency in a turn's rank: of equals the newer comes first, and no old answer is drowned by new talk."""
TURN_SIMILARITY_WEIGHT = 0.8
"""Weight of the words of a turn itself, relative to 1 for its passage."""
ANSWER_SHARE = 0.15
"""Share of a question's similarity that the next turn gets: an answer need not repeat its question's words."""
SHINGLE_WORDS = 4
DUPLICATE_SHINGLE_SHARE = 0.8
"""Two turns are duplicates if the other has this share of the shorter one's shingles."""
GAP_MARK = "…"
"""Shown between turns that are not adjacent."""
_WORD = compile_bounded(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")
_PLACE = compile_bounded(r"^\[\S+ [^\]\n]*\] ?", re.MULTILINE)


@dataclass(frozen=True)
class PassageTurn:
    """The smallest unit that is recalled: a line of the conversation, a part of a long one, or an undivided passage."""

    passage: Passage
    """The best passage that contains it."""
    number: int
    """Number in its source."""
    label: str
    """Its message and speaker, without brackets; empty if the passage is not split."""
    text: str
    is_continuation: bool = False
    """Whether it continues the line of the previous turn."""
    score: float = 0.0
    """Score of its passage, from 0 to 1."""
    restored_placeholders: frozenset[str] = frozenset()
    """Placeholders that were replaced by names in its text."""

    @property
    def unlabelled_text(self) -> str:
        """Text without labels."""
        return self.text if self.label else _PLACE.sub("", self.text)

    @property
    def message_ids(self) -> tuple[str, str]:
        """Ids of its first and last message."""
        message = self.label.partition(" ")[0]
        return (message, message) if message else (self.passage.first_message, self.passage.last_message)

    @property
    def speaker(self) -> str:
        """Speaker, as in its label."""
        return self.label.partition(" ")[2]

    def with_names(self, names: Mapping[str, str]) -> "PassageTurn":
        """Replace placeholders by these names, put on one line so that a name with a line end cannot start a line."""
        on_one_line = {placeholder: sanitize_line(name) for placeholder, name in names.items()}
        there = names.keys() & PLACEHOLDER_PATTERN.findall(self.text)
        return replace(
            self,
            text=restore_originals(self.text, on_one_line).text,
            restored_placeholders=self.restored_placeholders | there,
        )

    @property
    def text_with_label(self) -> str:
        """Text as shown at the start of a stretch, or when the speaker changes."""
        return f"[{self.label}] {GAP_MARK if self.is_continuation else ''}{self.text}" if self.label else self.text

    @property
    def ends_with_question(self) -> bool:
        """Whether it is talk that ends with a question."""
        return bool(self.label) and is_question(self.text)

    @property
    def turn_key(self) -> tuple[tuple[str, ...], int]:
        """Key that is equal for the same turn in every passage that contains it."""
        return self.passage.source_key, self.number

    def is_directly_after(self, before: "PassageTurn") -> bool:
        """Whether it directly follows the other turn."""
        return self.turn_key == (before.passage.source_key, before.number + 1)


def join_turns(turns: Iterable[PassageTurn]) -> str:
    """Join the texts of the turns without labels."""
    return "".join(
        turn.unlabelled_text if turn.is_continuation else f"\n{turn.unlabelled_text}" for turn in turns
    ).removeprefix("\n")


@dataclass(frozen=True)
class MemoryExcerpt:
    """Turns of one conversation, document or report, in their order."""

    turns: tuple[PassageTurn, ...]
    session: str = ""
    """Name of its session, if it is not the reader's own."""

    def __str__(self) -> str:
        return self.markup

    @property
    def markup(self) -> SafeMarkup:
        """The excerpt as a model reads it, within a tag of ours: a record with its source.

        It is data, never an instruction.
        """
        if self.best_turn.label:  # no line of a turn can pass for a label, so a short one is enough
            session = f' of session "{neutralize_markdown(sanitize_line(self.session))}"' if self.session else ""
            label = f"{self.best_turn.passage.short_id} {self.best_turn.passage.created:%Y-%m-%d}{session}"
            return join_safe_markup(f"[{label}]", self.text)
        session = {"session": sanitize_line(self.session)} if self.session else {}
        return wrap_untrusted("passage", self.text, id=" ".join(self.short_ids), **self._source, **session)

    @property
    def text(self) -> str:
        """Text in which each stretch begins with its message and speaker, as does each change of speaker."""
        text = self.turns[0].text_with_label
        for before, turn in pairwise(self.turns):
            if not turn.is_directly_after(before):
                text += f"\n{GAP_MARK}\n{turn.text_with_label}"
            elif not turn.label:
                text = _joined(text, turn.text)
            elif turn.is_continuation:
                text += turn.text
            else:
                known = turn.speaker == before.speaker and not looks_like_label(turn.text)
                text += f"\n{turn.text if known else turn.text_with_label}"
        return text

    @property
    def best_turn(self) -> PassageTurn:
        """The turn with the best passage."""
        return max(self.turns, key=lambda turn: turn.score)

    @property
    def short_ids(self) -> tuple[str, ...]:
        """Short ids of its passages for `expand`; for a conversation one, from which the others can be reached."""
        return tuple(turn.passage.short_id for turn in ((self.best_turn,) if self.best_turn.label else self.turns))

    @property
    def _source(self) -> Mapping[str, str]:
        """Parts of the source that are not in the text, which names messages and lines of documents."""
        first, last = self.turns[0].passage, self.turns[-1].passage
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
        """Hash of its session."""
        return self.turns[0].passage.session

    @cached_property
    def tokens(self) -> int:
        """Plain estimate of the tokens that it takes when shown."""
        return estimate_text(str(self))

    def with_turn(self, turn: PassageTurn) -> "MemoryExcerpt":
        """Return the excerpt with one more turn."""
        return replace(self, turns=tuple(sorted((*self.turns, turn), key=lambda one: one.number)))


def extract_turns(found: Sequence[ScoredPassage]) -> tuple[PassageTurn, ...]:
    """Return the turns of the passages that were found, best first, each once."""
    turns: dict[object, PassageTurn] = {}
    for recalled in found:
        for turn in recalled.passage.turns:
            turns.setdefault(turn.turn_key, replace(turn, score=recalled.score))
    return tuple(turns.values())


def select_excerpts(turns: Sequence[PassageTurn], likeness: Sequence[float], tokens: int) -> tuple[MemoryExcerpt, ...]:
    """Select the best turns within a number of tokens, grouped by source, the best source first.

    A turn that says nothing new is left out: nearly the same words as a better one, and no other figure.

    Args:
        turns: turns of the passages that were found.
        likeness: for each, the similarity of its words to the query, 0 if there is none.
        tokens: maximum number of tokens in total.
    """
    chosen: dict[object, MemoryExcerpt] = {}
    said: list[_Words] = []
    room = tokens
    for turn in _by_worth(turns, likeness):
        if estimate_text(turn.unlabelled_text) > room or (words := _Words.of(turn.unlabelled_text)).is_redundant(said):
            continue
        before = chosen.get(turn.passage.source_key)
        longer = before.with_turn(turn) if before else MemoryExcerpt((turn,))
        cost = longer.tokens - (before.tokens if before else 0)
        if cost <= room:
            room -= cost
            chosen[turn.passage.source_key] = longer
            said.append(words)
    return tuple(chosen.values())


def _by_worth(turns: Sequence[PassageTurn], likeness: Sequence[float]) -> list[PassageTurn]:
    """Sort turns best first: by passage, by own words and by the question before them, with a share for recency."""
    best = max((turn.score for turn in turns), default=0.0) or 1.0
    said = sorted(turns, key=lambda turn: (turn.passage.created, turn.turn_key))
    late = {turn.turn_key: RECENCY_SHARE * number / max(1, len(said) - 1) for number, turn in enumerate(said)}
    own = [*zip(turns, likeness, strict=True)]
    answering = {
        (turn.passage.source_key, turn.number + 1): ANSWER_SHARE * alike
        for turn, alike in own
        if turn.ends_with_question
    }
    worth = {
        turn.turn_key: turn.score / best
        + TURN_SIMILARITY_WEIGHT * (alike + answering.get(turn.turn_key, 0.0))
        + late[turn.turn_key]
        for turn, alike in own
    }
    return sorted(turns, key=lambda turn: (-worth[turn.turn_key], turn.turn_key))


@dataclass(frozen=True)
class _Words:
    text: str
    shingles: frozenset[tuple[str, ...]]
    figures: frozenset[str]

    @classmethod
    def of(cls, text: str) -> "_Words":
        words: list[str] = _WORD.findall(text.casefold())
        shingles = zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False)
        figures = frozenset(word for word in words if any(map(str.isdigit, word)))
        return cls(text, frozenset(shingles) or frozenset([tuple(words)]), figures)

    def is_redundant(self, said: Iterable["_Words"]) -> bool:
        return any(self.text == one.text or self._are_in(one) for one in said)

    def _are_in(self, better: "_Words") -> bool:
        shared = len(self.shingles & better.shingles)
        return shared >= DUPLICATE_SHINGLE_SHARE * len(self.shingles) and self.figures <= better.figures


def _joined(before: str, after: str) -> str:
    """Join both texts without the overlap."""
    ends, begins = before.split("\n"), after.split("\n")
    repeated = next((some for some in range(min(len(ends), len(begins)), 0, -1) if ends[-some:] == begins[:some]), 0)
    return "\n".join([*ends, *begins[repeated:]])


MIN_RELEVANCE = 0.3
"""Passages with less relevance are not shown to an agent that did not ask."""
_CODE = compile_bounded(r"(?<![\w-])-*+(?:m\d++\b)?+(?=[\w-]*\d)([\w-]{3,})\b")
"""A code with a digit in it that is not the id of a message."""


class CosineScale(NamedTuple):
    """Mean cosines of an embedder: 0 is the mean of unrelated texts, 1 that of related ones.

    Each embedder has its own.
    """

    unrelated: float
    related: float

    def relevance(self, cosine: float) -> float:
        """Return the relevance of a cosine, from 0 to 1."""
        return min(1.0, max(0.0, (cosine - self.unrelated) / (self.related - self.unrelated)))


COSINE_SCALES: Mapping[str, CosineScale] = {
    "wordllama-l2-supercat-256": CosineScale(unrelated=0.057, related=0.432),
}
"""By name of the embedder. Measured by `python -m benchmarks.memory relevance`: 1,144 pairs of a question and a passage
that answers it, mean 0.432, and 337,728 of passages and questions on other subjects, mean 0.057. At 0.3 of this scale
87 % of the first are shown, and 6 % of the second. An embedder that is not listed is not filtered.
"""


def is_relevant(embedder: str, query: MemoryQuery, passage: Passage, vector: Sequence[float] | None) -> bool:
    """Whether a passage with this vector is worth showing unasked. Vectors have length 1.

    A passage that contains a figure or a code of the query is always relevant: vectors know little of those. So is
    everything that cannot be judged.
    """
    scale = COSINE_SCALES.get(embedder)
    if scale is None or query.dense is None or vector is None or _codes(query.text) & _codes(passage.unlabelled_text):
        return True
    cosine = sum(mine * its for mine, its in zip(query.dense, vector, strict=True))
    return scale.relevance(cosine) >= MIN_RELEVANCE


def _codes(text: str) -> frozenset[str]:
    return frozenset(_CODE.findall(text.casefold()))
