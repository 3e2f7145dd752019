"""A reader of pages for all tests of a module."""

import asyncio
from collections.abc import Iterator

import pytest

from waystation.documents.readers.reader import SubprocessWebTextExtractor


@pytest.fixture(scope="module")
def page_reader() -> Iterator[SubprocessWebTextExtractor]:
    """One for all tests of a module: its child takes a second to start."""
    reader = SubprocessWebTextExtractor()
    yield reader
    asyncio.run(reader.aclose())
