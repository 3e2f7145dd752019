"""What stands in where no dense embedder can run: memory then finds passages by BM25 alone."""

from collections.abc import Sequence

from waystation.ports.knowledge import Use


class NoEmbedder:
    """Implements the port `Embedder` without vectors."""

    name: str = "none"
    dimension: int | None = None

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:  # noqa: ARG002
        """None for each text."""
        return (None,) * len(texts)
