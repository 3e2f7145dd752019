"""Remembers what was read of uploaded files for a while, so that a file that was checked before a task is started is
not read again when the task starts. In memory only, and apart for each tenant.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from waystation.documents.documents import SkippedItem, SourceDocument

CACHE_SECONDS = 15 * 60.0
"""Time after which a file's text is forgotten."""
MAX_CACHED_CHARACTERS = 20_000_000
"""Maximum characters of all cached texts; the least recently used ones are forgotten first."""
_ENTRY_CHARACTERS = 1_000
"""What an entry counts in addition to its texts, so that the number of entries has a limit, too."""


class UploadKey(NamedTuple):
    """Identifies a file by what its text depends on, and the tenant that sent it: no one learns what others sent."""

    tenant: str
    file_name: str
    """Its extension decides how the file is read."""
    content_hash: str


class UploadReadResult(NamedTuple):
    """What was read of a file."""

    document: SourceDocument | None
    """The document, whose name is set later; None if nothing of the file can be used."""
    skipped_items: tuple[SkippedItem, ...]
    """Parts that cannot be used, such as `page 3`. Without a document, why the file cannot be used."""

    @property
    def characters(self) -> int:
        """Number of characters kept."""
        text = self.document.text if self.document else ""
        return _ENTRY_CHARACTERS + len(text) + sum(len(one.name) + len(one.reason) for one in self.skipped_items)


class UploadCache:
    """What was read of the files that were uploaded last.

    Entries expire when another one is stored or looked up, so nothing runs in the background.
    """

    def __init__(
        self,
        max_characters: int = MAX_CACHED_CHARACTERS,
        seconds: float = CACHE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build an empty cache. `clock`: returns the time in seconds."""
        self._max_characters, self._seconds, self._clock = max_characters, seconds, clock
        self._entries: OrderedDict[UploadKey, tuple[float, UploadReadResult]] = OrderedDict()
        self._characters = 0

    def get(self, key: UploadKey) -> UploadReadResult | None:
        """Return what was read of the file; None if it was not read lately."""
        self._remove_expired()
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][1]

    def put(self, key: UploadKey, read: UploadReadResult) -> None:
        """Store what was read of a file, from now on for the cache's time."""
        self._remove_expired()
        self._remove(key)
        if read.characters > self._max_characters:
            return
        self._entries[key] = (self._clock() + self._seconds, read)
        self._characters += read.characters
        while self._characters > self._max_characters:
            self._remove(next(iter(self._entries)))

    def _remove_expired(self) -> None:
        now = self._clock()
        for key in [key for key, (until, _) in self._entries.items() if until <= now]:
            self._remove(key)

    def _remove(self, key: UploadKey) -> None:
        _, read = self._entries.pop(key, (0.0, None))
        self._characters -= read.characters if read else 0
