"""Cheap looks at what a worker depends on."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

from sqlalchemy.exc import SQLAlchemyError
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError

from waystation.adapters.store.sql_store import SqlStore
from waystation.domain.errors import WaystationError

PATIENCE = timedelta(seconds=2)
NOT_ANSWERED = (WaystationError, RPCError, SQLAlchemyError, OSError, TimeoutError)
"""How the outside fails: Temporal, store or memory."""


async def answers(look: Awaitable[object]) -> bool:
    """Whether it comes to an end in time and without an error."""
    try:
        await asyncio.wait_for(look, PATIENCE.total_seconds())
    except NOT_ANSWERED:
        return False
    return True


async def look_at_temporal(client: Client) -> None:
    """The cheapest call that every server answers. Raises RPCError."""
    await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=PATIENCE)


async def look_at_store(store: SqlStore) -> None:
    """`select 1`. Raises SQLAlchemyError, OSError."""
    async with store.database.read() as connection:
        await connection.exec_driver_sql("select 1")
