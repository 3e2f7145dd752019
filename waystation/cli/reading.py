"""Reads files for a command, and says which one is being read if that takes long: text recognition may take minutes."""

from collections.abc import Sequence
from pathlib import Path
from threading import Event, Lock, Thread

from waystation.cli.console import print_message
from waystation.documents.document_loading import DocumentLoadResult, FileReadingEvent, load_documents

SILENT_SECONDS = 3.0
"""Time after which the file that is being read is named, and least time between two such lines."""


class ReadingProgress:
    """Prints a line whenever a file is still being read after `SILENT_SECONDS`; one line for each file."""

    def __init__(self, seconds: float | None = None) -> None:
        """`seconds`: after which a file is named; default: `SILENT_SECONDS`."""
        self._seconds = SILENT_SECONDS if seconds is None else seconds
        self._lock, self._ended = Lock(), Event()
        self._current: FileReadingEvent | None = None
        self._thread = Thread(target=self._watch, name="reading-progress", daemon=True)

    def __enter__(self) -> "ReadingProgress":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def start_file(self, file: FileReadingEvent) -> None:
        """Note which file is read from now on."""
        with self._lock:
            self._current = file

    def _watch(self) -> None:
        printed: FileReadingEvent | None = None
        while not self._ended.wait(self._seconds):
            with self._lock:
                current = self._current
            if current is not None and current != printed:
                printed = current
                print_message(f"Reading {current.path.name} (file {current.number} of {current.total}) …")


def load_documents_with_progress(paths: Sequence[Path]) -> DocumentLoadResult:
    """Load documents as `load_documents` does, and print a line for each file if it takes long. Raises BadInput."""
    with ReadingProgress() as progress:
        return load_documents(paths, on_start=progress.start_file)
