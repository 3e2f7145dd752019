"""Passages and queries for the tests of memory, in a space of four dimensions."""

import uuid
from datetime import UTC, datetime

from waystation.memory.passages import EmbeddedPassage, MemoryQuery, Passage

DIMENSION = 4
EAST, NORTH = (1.0, 0.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0)


def make_passage(
    text: str, *, tenant: str = "t1", session: str = "s1", dense: tuple[float, ...] | None = None
) -> EmbeddedPassage:
    return EmbeddedPassage(
        passage=Passage(
            id=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{tenant}/{session}/{text}")),
            tenant=tenant,
            session=session,
            task_id="task-1",
            run_id="task-1/r1",
            step_id="r1",
            first_message="m1",
            last_message="m5",
            text=text,
            content_hash="0" * 64,
            created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        ),
        dense=dense,
    )


def make_query(
    text: str, *, tenant: str = "t1", session: str = "s1", dense: tuple[float, ...] | None = None, limit: int = 6
) -> MemoryQuery:
    return MemoryQuery(tenant=tenant, session=session, text=text, dense=dense, limit=limit)
