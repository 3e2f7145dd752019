"""Searches chunks of texts with Presidio's engines: in this process, or in a child that its parent may kill."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from waystation.kernel.errors import RedactionFailed
from waystation.plugins.redaction.detections import NormalizedView, iter_normalized_views
from waystation.plugins.redaction.engines import Chunk, detect_language, iter_chunk_spans
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.plugins.redaction.search import PresidioSearch, TextContext
from waystation.plugins.redaction.search_protocol import (
    STRETCH_CHUNKS,
    ChunkSearchRequest,
    ChunkSearchResult,
    LoadRulesRequest,
    SearchFailure,
    TextRequiredResponse,
    WorkFailure,
    decode_search_request,
    run_capturing_errors,
)
from waystation.privacy.policy import RedactionPolicy

MAX_CACHED_CHARACTERS = 5_000_000
"""Maximum characters of texts that are kept because their other chunks are likely to come next.

The last text is kept however long it is.
"""


class _Read:
    """One way to read a text."""

    def __init__(self, view: NormalizedView) -> None:
        self.view = view

    @cached_property
    def chunks(self) -> list[Chunk]:
        return list(iter_chunk_spans(self.view.text))

    @cached_property
    def searched(self) -> TextContext:
        return TextContext(self.view.text)


@dataclass(frozen=True)
class _Held:
    characters: int
    reads: Sequence[_Read]


class TextSearch:
    """Searches texts. Not thread-safe."""

    def __init__(self, rules: DetectionConfig) -> None:
        self._rules = rules
        self._search = PresidioSearch(rules)
        self._held: OrderedDict[str, _Held] = OrderedDict()

    def load(self) -> None:
        """Load what most texts need. Raises RedactionFailed."""
        self._search.load(with_names=self._rules.policy is not RedactionPolicy.SECRETS_ONLY)

    def search(self, stretch: ChunkSearchRequest, text: str | None) -> ChunkSearchResult | TextRequiredResponse:
        """Search these chunks. `text` may be omitted if it was given before. Raises RedactionFailed."""
        held = self._held.get(stretch.digest)
        if held is None and text is None:
            return TextRequiredResponse()
        held = held or self._hold(stretch.digest, text or "")
        self._held.move_to_end(stretch.digest)
        read = held.reads[stretch.view]
        found = self._search.search_chunks(
            read.searched, read.chunks[stretch.first : stretch.first + STRETCH_CHUNKS], stretch.level
        )
        if stretch.first == 0:
            found = self._search.search_whole_text(read.view.text, stretch.level).merge(found)
        finds = found.map_to_original(read.view).detections
        return ChunkSearchResult(
            finds=tuple([(find.type, find.start, find.end, find.score) for find in finds]),
            unsearched_languages=found.unsearched_languages,
            chunks=len(read.chunks),
            views=len(held.reads),
        )

    def _hold(self, digest: str, text: str) -> _Held:
        self._held[digest] = held = _Held(len(text), [_Read(view) for view in iter_normalized_views(text)])
        while len(self._held) > 1 and sum(one.characters for one in self._held.values()) > MAX_CACHED_CHARACTERS:
            self._held.popitem(last=False)
        return held


class _Service:
    """What a child has loaded."""

    search: TextSearch | None = None

    def answer(self, message: bytes) -> ChunkSearchResult | TextRequiredResponse:
        request, text = decode_search_request(message)
        if isinstance(request, LoadRulesRequest):
            self.search = TextSearch(request.rules)
            self.search.load()
            return ChunkSearchResult()
        if self.search is None:
            raise RedactionFailed("a redaction process received a text before its rules")
        return self.search.search(request, text)


_SERVICE = _Service()


def prepare() -> None:
    """Load the language identifier, which reads a file."""
    detect_language("")


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    """Answer a request to a child (`waystation.security.confinement`); see `search_protocol`."""
    outcome = run_capturing_errors(lambda: _SERVICE.answer(request))
    said = SearchFailure.from_error(outcome.error) if isinstance(outcome, WorkFailure) else outcome.result
    return said.model_dump_json().encode()
