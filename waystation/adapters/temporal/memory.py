"""Memory that workers have open: each look is an activity of its own, and leaves nothing behind on the server."""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TypeVar

from temporalio.api.workflowservice.v1 import DeleteActivityExecutionRequest
from temporalio.client import ActivityFailureError, Client
from temporalio.common import RetryPolicy
from temporalio.exceptions import TimeoutError as ActivityTimeout
from temporalio.service import RPCError

from waystation.adapters.temporal.connect import RPC_TIMEOUT
from waystation.domain.errors import MemoryUnavailable, Unreachable
from waystation.domain.memory import Located, MemoryQuery, Passage, Recalled
from waystation.domain.names import CONTEXT_QUEUE, COUNT_PASSAGES, SEARCH_MEMORY
from waystation.domain.ownership import Reader

TAKEN_WITHIN = timedelta(seconds=5)
DONE_WITHIN = timedelta(seconds=60)
_T = TypeVar("_T")


class WorkersMemory:
    """Implements the port `MemorySearch`. What is found comes back as ids; `passages_with` has the passages."""

    def __init__(
        self, client: Client, passages_with: Callable[[Sequence[str], Reader], Awaitable[tuple[Passage, ...]]]
    ) -> None:
        self._client, self._passages_with = client, passages_with

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        """The best passages that the query admits. Its text must be redacted, since the server sees it.

        Raises Unreachable where no worker takes it, MemoryUnavailable.
        """
        located = await self._asked(SEARCH_MEMORY, query, tuple[Located, ...])
        ids = [one.passage_id for one in located]
        passages = {passage.id: passage for passage in await self._passages_with(ids, query.reader)}
        return tuple(
            Recalled(passage=passages[one.passage_id], score=one.score) for one in located if one.passage_id in passages
        )

    async def count(self, tenant: str) -> int:
        """Points of a tenant. Raises as above."""
        return await self._asked(COUNT_PASSAGES, tenant, int)

    async def _asked(self, name: str, about: MemoryQuery | str, kind: type[_T]) -> _T:
        activity_id = f"{name}-{uuid.uuid4().hex}"
        try:
            return await self._client.execute_activity(
                name,
                about,
                id=activity_id,
                task_queue=CONTEXT_QUEUE,
                result_type=kind,
                schedule_to_start_timeout=TAKEN_WITHIN,
                start_to_close_timeout=DONE_WITHIN,
                retry_policy=RetryPolicy(maximum_attempts=1),
            )
        except ActivityFailureError as error:
            if isinstance(error.cause, ActivityTimeout):
                raise Unreachable(
                    "another process has the memory open, and it is no worker that answers: `waystation status` tells "
                    "what runs here; `waystation memory reindex` has it open, too"
                ) from error
            raise MemoryUnavailable(str(error.cause)) from error
        except RPCError as error:
            raise Unreachable(f"the Temporal server does not answer ({error.status.name})") from error
        finally:
            with suppress(RPCError):
                gone = DeleteActivityExecutionRequest(namespace=self._client.namespace, activity_id=activity_id)
                await self._client.workflow_service.delete_activity_execution(gone, timeout=RPC_TIMEOUT)
