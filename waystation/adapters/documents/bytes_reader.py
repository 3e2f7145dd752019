"""Text out of bytes that came over a network: written to a file, and read as every file is, in a child."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from tempfile import NamedTemporaryFile

from charset_normalizer.utils import iana_name

from waystation.adapters.documents.child_reader import ChildReader
from waystation.adapters.documents.extract import Unreadable
from waystation.adapters.documents.reading import read_file
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
        with NamedTemporaryFile(prefix="waystation-page-", suffix=suffix) as file:
            file.write(_in_utf8(content, charset) if suffix in _TEXTS else content)
            file.flush()
            try:
                return read_file(Path(file.name), self._child).text
            except Unreadable as unreadable:
                raise WebRefused(f"The page cannot be read: {unreadable}", "Use another source.") from None


def _in_utf8(content: bytes, charset: str | None) -> bytes:
    """The bytes of a text in UTF-8, where its charset is as it is said to be; else as they are.

    What is UTF-8 by its bytes is taken for that, whatever is said: no text in another encoding is so by accident.
    """
    if charset is None or (not content.isascii() and _is_utf8(content)):
        return content
    try:
        return content.decode(iana_name(charset)).encode()
    except (ValueError, LookupError):
        return content


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
