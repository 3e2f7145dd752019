"""What stands in where memory is only named, and never asked: it cannot be reached."""

from collections.abc import Sequence

from waystation.domain.errors import MemoryUnavailable
from waystation.domain.memory import EmbeddedPassage, MemoryQuery, Recalled

WHY = "this process has none open"


class NoMemory:
    """Implements the port `Memory` without one. Every method but `aclose` raises MemoryUnavailable."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)

    async def delete(self, passage_ids: Sequence[str]) -> None:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)

    async def count(self, tenant: str) -> int:  # noqa: ARG002
        """Raises MemoryUnavailable."""
        raise MemoryUnavailable(WHY)

    async def aclose(self) -> None:
        """Nothing is open."""
