"""A redactor as it is without settings."""

from collections.abc import Iterator

import pytest

from waystation.plugins.redaction.redactor import PresidioRedactor


@pytest.fixture(scope="module")
def redactor() -> Iterator[PresidioRedactor]:
    redactor = PresidioRedactor(b"k" * 32)
    yield redactor
    redactor.close()
