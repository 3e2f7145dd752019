"""Prints the modules that three trips go through, in the order in which each is first entered, and how many folders own
them: `make trips`.

A task runs over real documents with the offline model, workers and client in this process, on a Temporal server of its
own. It runs twice, since the first run also loads modules. A module is on a trip if one of its functions is called
between the trip's first call and its last, whatever for; child processes, which read files and redact, are not traced.
It carries the trip if a function of it is called with the trip's value, in one of the value's forms, as an argument:
these modules are what one reads to follow the value. The kernel, whose functions take any value, is not among them.
"""

import asyncio
import inspect
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import NamedTuple

from temporalio.client import Client as Temporal
from temporalio.testing import WorkflowEnvironment

from benchmarks.modules import FOLDERS, ROOT
from waystation.agents.agent_run import AgentRun
from waystation.agents.compaction_request import CompactionRequest
from waystation.agents.deliverables import ReportDraft
from waystation.agents.leg import ContextFull, LegRequest
from waystation.agents.loop import AgentLoop, TurnRunner
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.context.transcript import Transcript
from waystation.documents.document_loading import load_documents, write_package_documents
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.memory.passages import Passage
from waystation.memory.qdrant.edge import QdrantEdgeMemory
from waystation.planning.plan import Plan
from waystation.runtime.temporal.dev_server import find_temporal_executable
from waystation.tasks.approvals import ApproveInput
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, TaskProgress, TaskRequest, TaskRow
from waystation.tasks.task_repository import SqlTaskRepository
from waystation.workers.wiring import run_configured_workers

QUESTION = "Which licences do these packages carry?"
DOCUMENTS = 12
GRANT = Amount(tokens=60_000)
TENANT = "trips"
LOOK_SECONDS = 0.2


class TripSpec(NamedTuple):
    """From a call or a result to a call."""

    name: str
    first: FunctionType
    last: FunctionType
    result: type | None = None
    """Of `first`: the trip begins with a result of this class, and not with a call."""
    window: int | None = None
    budget: int = 400_000
    """Tokens."""
    agent_budget: int | None = None
    forms: tuple[type, ...] = ()
    """Classes of the value that makes the trip, in the order in which it takes these forms."""


def _function(method: Callable[..., object]) -> FunctionType:
    """What is called in the end: without decorators."""
    function = inspect.unwrap(method)
    assert isinstance(function, FunctionType)
    return function


ALL = (
    TripSpec(
        "from submit to the stored report",
        _function(Client.submit),
        _function(SqlTaskRepository.save_task_progress),
        forms=(TaskRequest, TaskRow, TaskState, Plan, LegRequest, ReportDraft, TaskProgress),
    ),
    TripSpec(
        "from a full context to Qdrant",
        _function(TurnRunner.run_turns),
        _function(QdrantEdgeMemory.upsert),
        result=ContextFull,
        window=12_000,
        forms=(ContextFull, CompactionRequest, Transcript, Passage),
    ),
    TripSpec(
        "from an approval to the agent that goes on",
        _function(Client.approve),
        _function(AgentLoop.run),
        budget=60_000,
        agent_budget=17_000,
        forms=(ApproveInput, ApprovalRequest, AgentRun, LegRequest),
    ),
)


class TripTrace:
    """One trip: the modules that it has entered so far."""

    def __init__(self, trip: TripSpec) -> None:
        self.trip = trip
        self.entered: dict[str, None] = {}
        self.carrying: dict[str, None] = {}
        """The modules that carry the trip."""
        self.on = self.over = False

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The folders that own the trip's modules, by first entry: `agents/tools` belongs to `agents`."""
        return _list_owners(self.entered)

    @property
    def folder_crossings(self) -> int:
        """How often the next module is in another folder."""
        folders = [Path(name).parent for name in self.entered]
        return sum(one != other for one, other in pairwise(folders))

    def record_arguments(self, name: str, frame: FrameType) -> None:
        """A function of module `name` is called."""
        if not self.on or self.over or name in self.carrying or _find_owner(name) == _ANY_VALUE:
            return
        code, values = frame.f_code, frame.f_locals
        for argument in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            value = values.get(argument)
            if isinstance(value, self.trip.forms) or (
                isinstance(value, tuple | list) and value and isinstance(value[0], self.trip.forms)
            ):
                self.carrying.setdefault(name)
                return

    def record(self, name: str, code: CodeType, event: str, result: object) -> None:
        """A function of module `name` is called, or returns."""
        if self.over:
            return
        if not self.on and code is self.trip.first.__code__:
            self.on = event == "call" if self.trip.result is None else isinstance(result, self.trip.result)
        if self.on and event == "call":
            self.entered.setdefault(name)
            self.over = code is self.trip.last.__code__

    def __str__(self) -> str:
        chain = "; ".join(
            f"{folder}: {', '.join(Path(name).name for name in names)}"
            for folder, names in groupby(self.entered, lambda name: Path(name).parent.as_posix())
        )
        end = "" if self.over else " (NOT REACHED)"
        counts = (
            f"{len(self.entered)} modules in {len(self.capabilities)} folders "
            f"({', '.join(self.capabilities)}), {self.folder_crossings} crossings"
        )
        owners = _list_owners(self.carrying)
        carried = f"carried by {len(self.carrying)} modules in {len(owners)} folders ({', '.join(owners)})"
        return f"{self.trip.name}{end}: {carried}; {counts}\n  {chain}\n"


_ANY_VALUE = "kernel"
"""Folder whose functions take any value, to store or compare it."""


def _find_owner(name: str) -> str:
    parts = Path(name).with_suffix("").parts
    return parts[1] if parts[0] == "waystation" else parts[0]


def _list_owners(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_find_owner, names)))


class Tracer:
    """The trip of now, traced in every thread of this process."""

    def __init__(self) -> None:
        self.now: TripTrace | None = None
        self._modules: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        """As `sys.setprofile` calls it."""
        if self.now is None or event not in {"call", "return"}:
            return
        code = frame.f_code
        if code not in self._modules:
            self._modules[code] = _module(code)
        if name := self._modules[code]:
            self.now.record(name, code, event, result)
            if event == "call":
                self.now.record_arguments(name, frame)


def _module(code: CodeType) -> str | None:
    """The module of a function; None for what is not ours, and for bodies of modules and classes."""
    path = Path(code.co_filename)
    if not code.co_flags & inspect.CO_OPTIMIZED or not path.is_relative_to(ROOT):
        return None
    name = path.relative_to(ROOT).with_suffix("").as_posix()
    return name if name.split("/")[0] in FOLDERS else None


class TripRunner:
    """Where tasks go from question to report."""

    def __init__(self, client: Client, server: Temporal, documents: Sequence[SourceDocument]) -> None:
        self.client, self.server, self.documents = client, server, documents

    async def run_task(self, trip: TripSpec, name: str) -> None:
        """One task. Nobody looks at it while it goes on, but until it has asked for what a trip wants to grant."""
        task = await self.client.submit(request(trip, name), self.documents)
        while trip.agent_budget is not None and not (found := await self.client.get_task(task.task_id)).phase.over:
            for one in found.approvals:
                if one.decision == "pending":
                    await self.client.approve(task.task_id, request_id=one.request_id, amount=GRANT, by="trips")
            await asyncio.sleep(LOOK_SECONDS)
        await self.server.get_workflow_handle(task.task_id).result()


def request(trip: TripSpec, name: str) -> TaskRequest:
    """A task on which this trip happens."""
    return TaskRequest(
        question=QUESTION,
        tenant=TENANT,
        request_id=f"{trip.name}, {name}",
        budget=Limit(tokens=trip.budget),
        agent_budget=None if trip.agent_budget is None else Limit(tokens=trip.agent_budget),
        window=trip.window,
    )


async def trace_trips(home: Path) -> list[TripTrace]:
    """Each trip, on the second of two equal tasks."""
    tracer, found = Tracer(), [TripTrace(trip) for trip in ALL]
    threading.setprofile(tracer)
    sys.setprofile(tracer)
    write_package_documents(home / "documents")
    documents = load_documents([home / "documents"]).documents[:DOCUMENTS]
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal_executable(), dev_server_log_level="error"
    ) as server:
        os.environ["TEMPORAL_ADDRESS"] = server.client.service_client.config.target_host
        # Documents are not indexed: that goes on after a task, and would end the next trip to Qdrant.
        settings = Settings(home=home, offline=True, tenant=TENANT, remembered_characters=0)
        async with run_configured_workers(settings), await Client.connect(settings) as client:
            road = TripRunner(client, server.client, documents)
            for one in found:
                await road.run_task(one.trip, "first")
                tracer.now = one
                await road.run_task(one.trip, "second")
                tracer.now = None
    sys.setprofile(None)
    return found


def main() -> None:
    """Each trip with its numbers, then its modules: a folder, and what is entered there before the next folder."""
    with tempfile.TemporaryDirectory() as folder:
        trips = asyncio.run(trace_trips(Path(folder)))
    sys.stdout.write("\n".join(map(str, trips)))
    sys.stdout.flush()
    os._exit(0 if all(trip.over for trip in trips) else 1)  # the SDK's native runtime can crash at exit


if __name__ == "__main__":
    main()
