"""The worker deployment of an installation: which build is current, and which builds still have tasks.

A build is the code of one release, with workers on all queues. The server sends new tasks to the current build, and
tasks stay on their build until they continue as new.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from temporalio.api.deployment.v1 import WorkerDeploymentInfo
from temporalio.api.enums.v1 import RoutingConfigUpdateState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.temporal_names import (
    DEPLOYMENT_CHANGED,
    QUEUE_PREFIX,
    QUEUES,
    SCHEDULED_RUN_WORKFLOW,
    TASK_WORKFLOW,
    WORKFLOWS_QUEUE,
    make_deployment_name,
)
from waystation.kernel.value import Value
from waystation.runtime.temporal.connect import RPC_TIMEOUT
from waystation.runtime.temporal.installation import get_client_installation_prefix, to_server_id

BuildState = Literal["current", "draining", "drained", "inactive"]
"""`draining`: no new tasks, and some that have not ended. `inactive`: it was never current."""
SIGNALS_AT_ONCE = 20
ROUTING_PATIENCE = timedelta(seconds=30)
ROUTING_POLL_SECONDS = 0.1


class BuildStatus(Value):
    """A build of the deployment."""

    build_id: str
    state: BuildState
    tasks: int
    """Tasks that have not ended and run on this build."""
    workflows: int
    """All workflows that keep this build in use, with the tasks."""
    queues: tuple[str, ...]
    """Short names of the queues that workers of this build have polled in the last minutes."""
    current_since: datetime | None = None
    last_current: datetime | None = None
    """When it last became the current build."""


class _Deployment(NamedTuple):
    info: WorkerDeploymentInfo
    conflict_token: bytes

    @property
    def current(self) -> str:
        """Build id of the current build; empty if there is none."""
        return self.info.routing_config.current_deployment_version.build_id


class TemporalDeploymentClient:
    """The deployment of the client's installation. Every method raises Unreachable if the server does not answer."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.name = make_deployment_name(get_client_installation_prefix(client))

    async def list_builds(self) -> tuple[BuildStatus, ...]:
        """Return the builds, the current one first, then by when they were last current.

        Raises:
            BadInput: No worker with worker versioning has run.
        """
        deployment = await self._require()
        polled = await self._list_polled_queues()
        builds: list[BuildStatus] = []
        for version in deployment.info.version_summaries:
            build_id = version.deployment_version.build_id
            workflows = await self._count(build_id)
            last = version.last_current_time.ToDatetime(UTC) if version.HasField("last_current_time") else None
            is_current = build_id == deployment.current
            builds.append(
                BuildStatus(
                    build_id=build_id,
                    state=_get_state(workflows, is_current=is_current, was_current=last is not None),
                    tasks=await self._count(build_id, f' AND WorkflowType = "{TASK_WORKFLOW}"'),
                    workflows=workflows,
                    queues=tuple(name for name in map(_shorten, QUEUES) if name in polled.get(build_id, ())),
                    current_since=version.current_since_time.ToDatetime(UTC) if is_current else None,
                    last_current=last,
                )
            )
        never = datetime.min.replace(tzinfo=UTC)
        return tuple(sorted(builds, key=lambda one: (one.state == "current", one.last_current or never), reverse=True))

    async def ensure_current(self, build_id: str) -> None:
        """Make this build the current one if the deployment never had one: the server would start no task before."""
        found = await self._describe()
        if found is not None and found.info.routing_config.HasField("current_version_changed_time"):
            return
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self._client.namespace,
            deployment_name=self.name,
            build_id=build_id,
            conflict_token=found.conflict_token if found is not None else b"",
            # Its workers poll in a moment.
            allow_no_pollers=True,
        )
        with suppress(BadInput):  # another worker was quicker
            await self._set_current(request)

    async def set_current(self, build_id: str) -> None:
        """Make a build the current one, and wait until the server sends new work to it.

        Raises:
            BadInput: No workers of this build run, or not on all queues.
        """
        await self._require()
        request = SetWorkerDeploymentCurrentVersionRequest(
            namespace=self._client.namespace, deployment_name=self.name, build_id=build_id
        )
        try:
            await self._set_current(request)
        except _UnknownBuildError as error:
            raise BadInput(
                f"no workers of build {build_id} have run: `waystation deploy status` lists all builds"
            ) from error
        with suppress(TimeoutError):
            async with asyncio.timeout(ROUTING_PATIENCE.total_seconds()):
                while (await self._require()).info.routing_config_update_state == _IN_PROGRESS:  # noqa: ASYNC110  the server gives no event
                    await asyncio.sleep(ROUTING_POLL_SECONDS)

    async def nudge_tasks(self) -> int:
        """Wake the tasks that other builds than the current one run. Returns their number.

        Each then moves to the current build as soon as its agents are between two legs. A task that is not woken would
        not see that the current build has changed.
        """
        current = (await self._require()).current
        query = f'{self._open_on(current, "!=")} AND WorkflowType IN ("{TASK_WORKFLOW}", "{SCHEDULED_RUN_WORKFLOW}")'
        async with self._answering():
            found = [execution.id async for execution in self._client.list_workflows(query)]
            for first in range(0, len(found), SIGNALS_AT_ONCE):
                await asyncio.gather(*map(self._nudge, found[first : first + SIGNALS_AT_ONCE]))
        return len(found)

    async def _nudge(self, workflow_id: str) -> None:
        try:
            await self._client.get_workflow_handle(workflow_id).signal(DEPLOYMENT_CHANGED, rpc_timeout=RPC_TIMEOUT)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:  # it has ended
                raise

    def _open_on(self, build_id: str, operator: str = "=") -> str:
        return (
            f'ExecutionStatus = "Running" AND TemporalWorkflowVersioningBehavior = "Pinned" AND '
            f'TemporalWorkerDeployment = "{self.name}" AND '
            f'TemporalWorkerDeploymentVersion {operator} "{self.name}:{build_id}"'
        )

    async def _count(self, build_id: str, more: str = "") -> int:
        async with self._answering():
            return (await self._client.count_workflows(self._open_on(build_id) + more)).count

    async def _list_polled_queues(self) -> Mapping[str, set[str]]:
        """Return the queues that each build polls."""
        found: dict[str, set[str]] = {}
        for queue in QUEUES:
            kind = TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW if queue == WORKFLOWS_QUEUE else _ACTIVITIES
            request = DescribeTaskQueueRequest(
                namespace=self._client.namespace,
                task_queue=TaskQueue(name=to_server_id(self._client, queue)),
                task_queue_type=kind,
            )
            async with self._answering():
                described = await self._client.workflow_service.describe_task_queue(request, timeout=RPC_TIMEOUT)
            for poller in described.pollers:
                found.setdefault(poller.deployment_options.build_id, set()).add(_shorten(queue))
        return found

    async def _require(self) -> _Deployment:
        found = await self._describe()
        if found is None:
            raise BadInput(
                f"the server has no deployment {self.name}: start workers with WAYSTATION_VERSIONING=true, which "
                "create it"
            )
        return found

    async def _describe(self) -> _Deployment | None:
        request = DescribeWorkerDeploymentRequest(namespace=self._client.namespace, deployment_name=self.name)
        try:
            async with self._answering():
                answer = await self._client.workflow_service.describe_worker_deployment(request, timeout=RPC_TIMEOUT)
        except _UnknownBuildError:
            return None
        return _Deployment(answer.worker_deployment_info, answer.conflict_token)

    async def _set_current(self, request: SetWorkerDeploymentCurrentVersionRequest) -> None:
        async with self._answering():
            await self._client.workflow_service.set_worker_deployment_current_version(request, timeout=RPC_TIMEOUT)

    @asynccontextmanager
    async def _answering(self) -> AsyncGenerator[None]:
        try:
            yield
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise _UnknownBuildError(error.message) from error
            if error.status in _REFUSED:
                raise BadInput(f"the Temporal server refuses the request: {error.message}") from error
            raise Unreachable(f"the Temporal server does not answer ({error.status.name})") from error


def find_previous_build(builds: Sequence[BuildStatus]) -> BuildStatus | None:
    """Return the build that was current before the current one; None if there is none."""
    earlier = [build for build in builds if build.state != "current" and build.last_current is not None]
    return max(earlier, key=lambda build: build.last_current or datetime.min.replace(tzinfo=UTC), default=None)


class _UnknownBuildError(BadInput):
    """The server knows no such deployment or build."""


_ACTIVITIES = TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY
_IN_PROGRESS = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_IN_PROGRESS
_REFUSED = frozenset({RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.ABORTED})


def _get_state(workflows: int, *, is_current: bool, was_current: bool) -> BuildState:
    if is_current:
        return "current"
    if workflows:
        return "draining"
    return "drained" if was_current else "inactive"


def _shorten(queue: str) -> str:
    return queue.removeprefix(QUEUE_PREFIX)
