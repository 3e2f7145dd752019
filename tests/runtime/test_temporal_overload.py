"""What becomes of a call that the Temporal server cannot take just now."""

from typing import NoReturn

import pytest
from temporalio.client import Client, CountWorkflowsInput, Interceptor, OutboundInterceptor
from temporalio.service import RPCError, RPCStatusCode

from waystation.kernel.errors import Unreachable
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.runtime.temporal.task_client import TemporalTaskClient


class _Busy(OutboundInterceptor):
    """It is asked for nothing else."""

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status

    async def count_workflows(self, input: CountWorkflowsInput) -> NoReturn:
        raise RPCError("not now", self._status, b"")


class Busy(Interceptor):
    """A server that answers every count with this status."""

    def __init__(self, status: RPCStatusCode) -> None:
        self._status = status

    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        return _Busy(self._status)


@pytest.mark.parametrize(
    "status",
    [RPCStatusCode.UNAVAILABLE, RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION],
)
async def test_a_server_that_cannot_answer_now_is_unreachable(
    temporal_server: TemporalTarget, status: RPCStatusCode
) -> None:
    client = await Client.connect(temporal_server.address, interceptors=[Busy(status)])
    with pytest.raises(Unreachable, match=status.name):
        await TemporalTaskClient(client, temporal_server).count_waiting_tasks()
