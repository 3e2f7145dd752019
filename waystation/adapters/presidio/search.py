"""What Presidio finds in chunks of a text, without what must stay and without junk."""

from collections.abc import Sequence
from dataclasses import replace

from presidio_analyzer import AnalyzerEngine, BatchAnalyzerEngine

from waystation.adapters.presidio.engines import LANGUAGE, format_engine, name_engine
from waystation.adapters.presidio.found import Found, without_overlaps
from waystation.adapters.presidio.kept import KeptStretches
from waystation.adapters.presidio.names import NameFilter
from waystation.adapters.presidio.placeholders import SHORT_TYPES
from waystation.domain.errors import RedactionFailed

_MASK = "\ufffc"
Chunk = tuple[int, int]


class SearchedText:
    """A text and what has to be known of the whole of it to judge a find."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.kept = KeptStretches(text)
        self.names = NameFilter(text)


class PresidioSearch:
    """Presidio's engines, loaded when they are first needed. Not for several threads at once."""

    def __init__(self, spacy_model: str) -> None:
        self._spacy_model = spacy_model
        self._formats: BatchAnalyzerEngine | None = None
        self._names: BatchAnalyzerEngine | None = None

    def load(self) -> None:
        """Load both engines. Raises RedactionFailed if the spaCy model is not installed."""
        self._format_engine()
        self._name_engine()

    def formats(self, searched: SearchedText, chunks: Sequence[Chunk]) -> list[Found]:
        """Secrets and direct identifiers.

        What was found is masked and its chunk searched again until nothing more comes: next to another number a phone
        number may look like part of a table, next to a placeholder it does not. So redacting twice changes nothing.
        """
        finds: list[Found] = []
        pieces = [(start, searched.text[start:end]) for start, end in chunks]
        while pieces:
            answers = _analyse(self._format_engine(), [piece for _, piece in pieces])
            searched_again: list[tuple[int, str]] = []
            for (offset, piece), hits in zip(pieces, answers, strict=True):
                fresh = [
                    hit
                    for hit in hits
                    if _MASK not in piece[hit.start : hit.end] and not searched.kept.cover(_moved(hit, offset))
                ]
                if fresh:
                    found = without_overlaps(piece, fresh)
                    finds += [_moved(hit, offset) for hit in found]
                    searched_again.append((offset, _masked(piece, found)))
            pieces = searched_again
        return finds

    def names(self, searched: SearchedText, chunks: Sequence[Chunk]) -> list[Found]:
        """Names of people and places. Raises RedactionFailed if the spaCy model is not installed."""
        pieces = [searched.text[start:end] for start, end in chunks]
        answers = _analyse(self._name_engine(), pieces)
        candidates = (
            searched.names.name_in(_moved(hit, offset))
            for (offset, _), hits in zip(chunks, answers, strict=True)
            for hit in hits
        )
        return [name for name in candidates if name and not searched.kept.cover(name)]

    def _format_engine(self) -> BatchAnalyzerEngine:
        self._formats = self._formats or BatchAnalyzerEngine(format_engine())
        return self._formats

    def _name_engine(self) -> BatchAnalyzerEngine:
        self._names = self._names or BatchAnalyzerEngine(_names_by(self._spacy_model))
        return self._names


def _names_by(spacy_model: str) -> AnalyzerEngine:
    try:
        return name_engine(spacy_model)
    except OSError:
        raise RedactionFailed(f"the spaCy model {spacy_model} is not installed") from None


def _analyse(engine: BatchAnalyzerEngine, pieces: list[str]) -> list[list[Found]]:
    # Its keyword arguments have no types.
    answers = engine.analyze_iterator(pieces, LANGUAGE, len(pieces))  # pyright: ignore[reportUnknownMemberType]
    return [[Found(SHORT_TYPES[hit.entity_type], hit.start, hit.end, hit.score) for hit in hits] for hits in answers]


def _moved(find: Found, offset: int) -> Found:
    return replace(find, start=find.start + offset, end=find.end + offset)


def _masked(piece: str, finds: Sequence[Found]) -> str:
    """The piece with its finds blotted out at the same length, and looking like placeholders from outside."""
    for find in finds:
        blot = f"<{_MASK * (find.end - find.start - 2)}>"
        piece = piece[: find.start] + blot + piece[find.end :]
    return piece
