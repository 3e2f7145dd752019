"""What stands in where memory and redaction are only named, and never asked: neither can be had."""

from collections.abc import Sequence

from waystation.domain.errors import MemoryUnavailable, RedactionFailed
from waystation.domain.memory import MemoryQuery, Recalled
from waystation.domain.privacy import Place
from waystation.domain.redaction import Redacted

WHY = "this process has none open"


class NoMemory:
    """Implements the port `MemorySearch` without a memory. Every method raises MemoryUnavailable."""

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)

    async def count(self, tenant: str) -> int:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)


class NoRedactor:
    """Implements the ports `Redactor` and `Placeholders` without any: no text gets by."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:  # noqa: ARG002
        """Raises RedactionFailed."""
        raise RedactionFailed("this process redacts nothing")

    async def placeholders(self, type_: str, values: Sequence[str], tenant: str) -> dict[str, str]:  # noqa: ARG002
        """Raises RedactionFailed."""
        raise RedactionFailed("this process redacts nothing")
