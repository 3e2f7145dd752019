"""What stands in where no dense embedder can run: memory then finds passages by BM25 alone."""

from collections.abc import Sequence


class NoEmbedder:
    """Implements the port `Embedder` without vectors."""

    name: str = "none"
    dimension: int | None = None

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...] | None, ...]:
        """None for each text."""
        return (None,) * len(texts)
