"""How a command looks into memory: it opens it, and where workers have it open already, it asks them."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from waystation.adapters.store.sql_store import SqlStore
from waystation.adapters.temporal.connect import connect_as_person, find_target
from waystation.adapters.temporal.memory import WorkersMemory
from waystation.domain.errors import MemoryInUse
from waystation.payloads import data_converter
from waystation.ports import Embedder, MemorySearch
from waystation.settings import Settings
from workers.memory import opened_memory


@asynccontextmanager
async def memory_to_search(settings: Settings, store: SqlStore, embedder: Embedder) -> AsyncGenerator[MemorySearch]:
    """The memory of these settings, as far as it can be searched.

    Raises as `opened_memory` does, and Unreachable where the process that has it open is not to be asked.
    """
    async with AsyncExitStack() as stack:
        try:
            memory: MemorySearch = await stack.enter_async_context(opened_memory(settings, embedder))
        except MemoryInUse:
            target = find_target(settings.run_file, settings.temporal_ui)
            client = await connect_as_person(target, data_converter(settings))
            memory = WorkersMemory(client, store.passages_with)
        yield memory
