"""Text out of bytes that came over a network: read as every file is, in a child, by what they are."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from tempfile import TemporaryFile

from waystation.adapters.documents.child_reader import ChildReader
from waystation.adapters.documents.extract import FileGiven, Unreadable
from waystation.domain.errors import WebRefused

SECONDS_A_PAGE = 20.0
_TEXTS = frozenset({".html", ".json", ".txt", ".xhtml", ".xml"})


class BytesReader:
    """A `PageReader`. Pages are read one after another, off the event loop; one that breaks its parser is refused."""

    def __init__(self, seconds_a_page: float = SECONDS_A_PAGE) -> None:
        self._stack = ExitStack()
        self._child = self._stack.enter_context(ChildReader(seconds_a_page))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-reader")

    async def read(self, content: bytes, suffix: str, charset: str | None) -> str:
        """See `PageReader`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, content, suffix, charset)

    async def aclose(self) -> None:
        """Read what was begun to its end, then end the child."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._stack.close)
        self._thread.shutdown()

    def _read(self, content: bytes, suffix: str, charset: str | None) -> str:
        given = FileGiven(name=f"page{suffix}", charset=charset if suffix in _TEXTS else None)
        with TemporaryFile() as file:
            file.write(content)
            file.flush()
            try:
                return self._child.read(file.fileno(), given).text
            except Unreadable as unreadable:
                raise WebRefused(f"The page cannot be read: {unreadable}", "Use another source.") from None
