"""What Presidio finds in chunks of a text, without what must stay and without junk."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from presidio_analyzer import AnalyzerEngine, BatchAnalyzerEngine

from waystation.adapters.presidio.engines import LANGUAGE, format_engine, name_engine
from waystation.adapters.presidio.found import SECRET, Found, without_overlaps
from waystation.adapters.presidio.kept import KeptStretches
from waystation.adapters.presidio.languages import language_of
from waystation.adapters.presidio.names import NameFilter
from waystation.adapters.presidio.placeholders import SHORT_TYPES
from waystation.adapters.presidio.rules import Rules
from waystation.domain.errors import RedactionFailed

_MASK = "\ufffc"
_SEPARATOR = re.compile(r"(?<=\S),(?=[^\s\d])|(?<=[^\s\d]),(?=\S)")
"""The comma of CSV: the language model takes `17,Ada Lovelace,4` for one word, and finds the name between line ends."""
Chunk = tuple[int, int]


class SearchedText:
    """A text and what has to be known of the whole of it to judge a find."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kept = KeptStretches(text)
        self.names = NameFilter(text)


class Names(NamedTuple):
    """What the language models found."""

    finds: list[Found]
    not_sought: frozenset[str]
    """Languages of chunks for which there is no model."""


class PresidioSearch:
    """Presidio's engines, loaded when they are first needed. Not for several threads at once."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._unclear = next(iter(rules.models))
        self._formats: BatchAnalyzerEngine | None = None
        self._names: dict[str, BatchAnalyzerEngine] = {}

    def load(self, *, with_names: bool) -> None:
        """Load what is needed of most texts. Raises RedactionFailed if the spaCy model is not installed."""
        self._format_engine()
        if with_names:
            language_of("")
            self._name_engine(self._unclear)

    def formats(self, searched: SearchedText, chunks: Sequence[Chunk], *, secrets_only: bool) -> list[Found]:
        """Secrets, and direct identifiers too where they are wanted.

        What was found is masked and its chunk searched again until nothing more comes: next to another number a phone
        number may look like part of a table, next to a placeholder it does not. So redacting twice changes nothing.
        """
        finds: list[Found] = []
        pieces = [(start, searched.text[start:end]) for start, end in chunks]
        while pieces:
            answers = _analyse(
                self._format_engine(), [piece for _, piece in pieces], [SECRET] if secrets_only else None
            )
            searched_again: list[tuple[int, str]] = []
            for (offset, piece), hits in zip(pieces, answers, strict=True):
                fresh = [
                    hit
                    for hit in hits
                    if _MASK not in piece[hit.start : hit.end] and self._counts(searched, _moved(hit, offset))
                ]
                if fresh:
                    found = without_overlaps(piece, fresh)
                    finds += [_moved(hit, offset) for hit in found]
                    searched_again.append((offset, _masked(piece, found)))
            pieces = searched_again
        return finds

    def names(self, searched: SearchedText, chunks: Sequence[Chunk]) -> Names:
        """Names of people and places, in the languages that have a model.

        Raises RedactionFailed if a spaCy model is not installed.
        """
        by_language: dict[str, list[Chunk]] = {}
        for start, end in chunks:
            language = language_of(searched.text[start:end]) or self._unclear
            by_language.setdefault(language, []).append((start, end))
        not_sought = frozenset(by_language) - frozenset(self._rules.models)
        finds = [
            find
            for language, own_chunks in by_language.items()
            if language not in not_sought
            for find in self._names_in(searched, own_chunks, language)
        ]
        return Names(finds, not_sought)

    def _names_in(self, searched: SearchedText, chunks: Sequence[Chunk], language: str) -> list[Found]:
        pieces = [_SEPARATOR.sub("\n", searched.text[start:end]) for start, end in chunks]
        answers = _analyse(self._name_engine(language), pieces)
        candidates = (
            searched.names.name_in(_moved(hit, offset))
            for (offset, _), hits in zip(chunks, answers, strict=True)
            for hit in hits
        )
        return [name for name in candidates if name and self._counts(searched, name)]

    def _counts(self, searched: SearchedText, find: Found) -> bool:
        """Whether it is to be replaced. What a recogniser of one's own found may lie in a reference."""
        if searched.kept.cover(find, though_a_reference=find.type in self._rules.own.types):
            return False
        return not self._rules.own.allow(searched.text[find.start : find.end])

    def _format_engine(self) -> BatchAnalyzerEngine:
        self._formats = self._formats or BatchAnalyzerEngine(format_engine(self._rules))
        return self._formats

    def _name_engine(self, language: str) -> BatchAnalyzerEngine:
        if language not in self._names:
            self._names[language] = BatchAnalyzerEngine(_names_by(self._rules.models[language]))
        return self._names[language]


def _names_by(spacy_model: str) -> AnalyzerEngine:
    try:
        return name_engine(spacy_model)
    except OSError:
        raise RedactionFailed(f"the spaCy model {spacy_model} is not installed") from None


def _analyse(engine: BatchAnalyzerEngine, pieces: list[str], types: list[str] | None = None) -> list[list[Found]]:
    # Its keyword arguments have no types.
    answers = engine.analyze_iterator(pieces, LANGUAGE, len(pieces), entities=types)  # pyright: ignore[reportUnknownMemberType]
    return [[Found(_short(hit.entity_type), hit.start, hit.end, hit.score) for hit in hits] for hits in answers]


def _short(type_: str) -> str:
    return SHORT_TYPES.get(type_, type_)


def _moved(find: Found, offset: int) -> Found:
    return replace(find, start=find.start + offset, end=find.end + offset)


def _masked(piece: str, finds: Sequence[Found]) -> str:
    """The piece with its finds blotted out at the same length, and looking like placeholders from outside."""
    for find in finds:
        blot = f"<{_MASK * (find.end - find.start - 2)}>"
        piece = piece[: find.start] + blot + piece[find.end :]
    return piece
