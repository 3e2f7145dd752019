"""Reads one table or answers one query in a confined child (`waystation.security.confined_process`), and is then ended.

It protects its parent from what it runs: any unforeseen crash of DuckDB ends it.
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
    """Do nothing: everything that is needed was imported."""


def answer(request: bytes, _files: Sequence[int]) -> bytes:
    """Return an `EngineResponse` as JSON, for an `EngineRequest`."""
    return _answered(EngineRequest.model_validate_json(request)).model_dump_json().encode()


def _answered(request: EngineRequest) -> EngineResponse:
    try:
        if request.text is not None:
            return EngineResponse(table=read_grid(request.text))
        # DuckDB takes longer to load than most tables take to be read.
        from waystation.documents.table_engine.database import answer_query as rows_of  # noqa: PLC0415

        return EngineResponse(rows=rows_of(request))
    except TableEngineError as unusable:
        return EngineResponse(rejection=str(unusable))
    except MemoryError:
        return EngineResponse(
            rejection=f"The query needs over {ENGINE_MEMORY_BYTES // 1_000_000_000} GB of memory. Query less data at a "
            "time."
        )
