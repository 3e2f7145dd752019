"""Reads a table or answers a query for its parent, in a confined child (`security.children`): one, after which it is
ended.

It protects its parent from what it runs: whatever DuckDB does that nobody foresaw ends it.
"""

from collections.abc import Sequence

from waystation.documents.table_engine.engine import (
    ENGINE_MEMORY_BYTES,
    EngineRequest,
    EngineResponse,
    TableEngineError,
)
from waystation.documents.table_engine.grid import read_grid


def prepare() -> None:
    """Nothing is needed beyond what is imported."""


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    """An `EngineResponse` as JSON, for an `EngineRequest`."""
    return _answered(EngineRequest.model_validate_json(request)).model_dump_json().encode()


def _answered(asked: EngineRequest) -> EngineResponse:
    try:
        if asked.text is not None:
            return EngineResponse(table=read_grid(asked.text))
        # DuckDB takes longer to load than most tables take to be read.
        from waystation.documents.table_engine.database import answer_query as rows_of  # noqa: PLC0415

        return EngineResponse(rows=rows_of(asked))
    except TableEngineError as unusable:
        return EngineResponse(refused=str(unusable))
    except MemoryError:
        return EngineResponse(
            refused=f"This needs more than {ENGINE_MEMORY_BYTES // 1_000_000_000} GB of memory. Query less at once."
        )
