"""Many tasks at once on servers, undisturbed and with workers that are killed: `make load TASKS=60 AT_ONCE=12`.

PostgreSQL, a Temporal server, a Qdrant server's protocol, and two worker processes for each queue; the model is the
offline one behind HTTP, in this process. It answers at once, or after `DELAY` seconds. `AGENTS` is the most that a
process runs at the same time. In the second round workers are killed again and again, the kinds in turn, each
`KILL_EVERY` seconds after the previous one is back; all database connections are cut once, and Qdrant refuses
everything for a while. `make load SHORT=1` has tasks over one short document, and `ROUNDS=killed` leaves out the first
round. If all tasks are at work at once (`TASKS=1000 AT_ONCE=1000`), all are submitted before the processes that run
agents start: otherwise, the first ones would end before the last ones are there.

A quiet tenant asks the same question again and again, one task at a time: first alone, then during each round. Its
times show whether it has to wait for the others.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import psutil
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from benchmarks.budgets.tables import print_table
from tests.end_to_end.messages_server import run_messages_server
from tests.end_to_end.shell import Shell, terminate, wait_until
from tests.end_to_end.test_team_deployment import is_health_ready, run_temporal_server
from tests.support.free_ports import find_free_port
from tests.support.postgres_server import PostgresServer, run_postgres_server
from tests.support.qdrant_server import QdrantStub, run_qdrant_server
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.errors import StoreUnavailable, Unreachable
from waystation.runtime.store_setup import build_client_data_converter
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import SubmittedTask

TASKS, AT_ONCE = (int(os.environ.get(name, usual)) for name, usual in (("TASKS", "60"), ("AT_ONCE", "12")))
QUEUES, OF_EACH = ("workflows", "agents", "context"), 2
SHORT = os.environ.get("SHORT") == "1"
ROUNDS = tuple(os.environ.get("ROUNDS", "undisturbed killed").split())
SESSIONS = 5
CALLS_AT_ONCE = 8
"""Submissions and reads of the benchmark itself at the same time: its process has ten connections to the database."""
QUIET_ALONE = 3
"""Tasks of the quiet tenant before the rounds."""
QUIET_PAUSE = 15.0
"""Seconds between two of its tasks."""
DELAY = float(os.environ.get("DELAY", "0"))
"""Seconds that a reply of the model takes."""
AGENTS = os.environ.get("AGENTS", "32")
"""Maximum number of agents that a process runs at the same time."""
KILL_EVERY = float(os.environ.get("KILL_EVERY", "10"))
"""Seconds from when a killed worker is back to the next kill, so that a slow machine keeps some workers."""
REFUSED_REQUESTS = 40
"""That Qdrant answers with 503, one after another."""
DOCUMENTS = tuple(
    SourceDocument(
        name=f"sheet-{sheet}.md",
        text="\n\n".join(
            f"Harbour Nordvik {sheet}-{line} has a depth of {line % 17 + 3} metres at low water."
            for line in range(12 if SHORT else 120)
        ),
    )
    for sheet in range(1 if SHORT else 4)
)
QUESTION = "Which harbours does the survey name, and what does it say about their depth?"
BUDGET, WINDOW = Limit(tokens=400_000), 10_000
LOOK = 0.5
ResultT = TypeVar("ResultT")
THE_REST = "the model and the client"

HEARTBEATS = re.compile(
    r'^temporal_request(?:_total)?{[^}]*operation="RecordActivityTaskHeartbeat"[^}]*} (\S+)$', re.MULTILINE
)


@dataclass
class WorkerFleet:
    """Worker processes, each of which can be killed and is then there again."""

    shell: Shell
    folder: Path
    running: dict[tuple[str, int], subprocess.Popen[bytes]] = field(
        default_factory=dict[tuple[str, int], subprocess.Popen[bytes]]
    )
    metrics: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    """Where each serves its metrics."""
    kills: int = 0
    most_megabytes: dict[str, float] = field(default_factory=dict[str, float])
    """By queue, the largest process that was seen."""
    ended_seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    """Processor time of the processes that were ended, by queue."""

    def start(self, queue: str, number: int) -> Callable[[], bool]:
        """Start a process. Returns a function that says whether it is ready."""
        health, metrics = f"127.0.0.1:{find_free_port()}", f"127.0.0.1:{find_free_port()}"
        self.metrics[queue, number] = metrics
        shell = self.shell.with_settings(WAYSTATION_HEALTH_ADDRESS=health, WAYSTATION_METRICS_ADDRESS=metrics)
        self.running[queue, number] = shell.start("worker", "--queues", queue, log=self.folder / f"{queue}.log")
        return lambda: is_health_ready(health)

    def stop_agents(self) -> None:
        """End the processes that run agents."""
        for (queue, _), process in self.running.items():
            if queue == "agents":
                self.ended_seconds[queue] += _sum_cpu_seconds(process.pid)
                terminate(process)

    def start_agents(self) -> None:
        """Start them again, and wait until they are ready."""
        for is_ready in [self.start("agents", number) for number in range(OF_EACH)]:
            wait_until(is_ready, 300, "readiness of the workers")

    def kill(self, queue: str, number: int) -> Callable[[], bool]:
        """Kill a process and start another at once. Returns a function that says whether that one is ready."""
        process = self.running[queue, number]
        self.ended_seconds[queue] += _sum_cpu_seconds(process.pid)
        process.kill()
        process.wait()
        self.kills += 1
        return self.start(queue, number)

    def record_memory(self) -> None:
        """Note what memory they have."""
        for (queue, _), process in self.running.items():
            try:
                size = psutil.Process(process.pid).memory_info().rss / 1e6
            except psutil.NoSuchProcess:
                continue
            self.most_megabytes[queue] = max(size, self.most_megabytes.get(queue, 0.0))

    def heartbeats(self) -> int:
        """That have reached the server from the processes that run now."""
        found = 0
        for address in self.metrics.values():
            with suppress(URLError):  # it was killed a moment ago
                page = urlopen(f"http://{address}/metrics").read().decode()
                found += sum(int(float(count)) for count in HEARTBEATS.findall(page))
        return found

    def measure_cpu_seconds(self) -> Mapping[str, float]:
        """Seconds that each part has worked until now, its children with it: workers by queue, all else by program."""
        queues = {process.pid: queue for (queue, _), process in self.running.items()}
        seconds = defaultdict(float, {THE_REST: sum(psutil.Process().cpu_times()[:2])} | self.ended_seconds)
        for child in psutil.Process().children():
            with suppress(psutil.NoSuchProcess):
                seconds[queues.get(child.pid) or child.name()] += _sum_cpu_seconds(child.pid)
        return seconds


def _sum_cpu_seconds(pid: int) -> float:
    """Seconds that a process and its children have worked."""
    found = 0.0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            found += sum(one.cpu_times()[:4])
    return found


@contextmanager
def running_fleet(shell: Shell, folder: Path) -> Generator[WorkerFleet]:
    """All of them, ready."""
    found = WorkerFleet(shell, folder)
    try:
        waiting = [found.start(queue, number) for number in range(OF_EACH) for queue in QUEUES]
        for is_ready in waiting:
            wait_until(is_ready, 300, "readiness of the workers")
        yield found
    finally:
        for process in found.running.values():
            terminate(process)


class RoundResult(NamedTuple):
    """What became of its tasks."""

    name: str
    seconds: float
    turns: int
    phases: Sequence[TaskPhase]
    kept_limits: Sequence[bool]
    """Whether each task has spent at most its limit."""
    history_bytes: Sequence[int]
    history_events: Sequence[int]
    connections: int
    """Most that the database had at once."""
    processor: Mapping[str, float]
    """Seconds that each part worked, by its name."""
    heartbeats: int
    """That reached the server; of processes that were killed, what they sent before is not in it."""
    database_bytes: int
    """That it grew by."""
    transactions: tuple[int, int]
    """Commits and rollbacks that it counted."""
    quiet: Sequence[float]
    """Seconds that each task of the quiet tenant took."""
    rows: int
    """Rows in the store at the end."""


@dataclass
class LoadGenerator:
    """Submits the tasks of a round, `AT_ONCE` of them at the same time, and waits for each."""

    client: Client
    server: TemporalClient
    round_name: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(CALLS_AT_ONCE))
    submitted: int = 0
    all_submitted: asyncio.Event = field(default_factory=asyncio.Event)

    async def run_task(self, number: int) -> tuple[TaskPhase, bool, int, int]:
        """Run a task to its end. Returns its phase, whether it kept its limit, and its history's bytes and events."""
        settings = Settings()
        async with self.slots:
            asked = TaskRequest(
                question=QUESTION,
                tenant=settings.tenant,
                session=f"{self.round_name}-{number % SESSIONS}",
                request_id=f"{self.round_name}-{number}",
                budget=BUDGET,
                window=WINDOW,
            )
            async with self.calls:
                task_id = (await submit_with_retry(self.client, asked)).task_id
            self.submitted += 1
            if self.submitted == TASKS:
                self.all_submitted.set()
            handle = self.server.get_workflow_handle(task_id)
            await retry_while_busy(handle.result)
            async with self.calls:
                described = await retry_while_busy(handle.describe)
                seen = described.raw_description.workflow_execution_info
                view = await retry_while_busy(lambda: self.client.get_task(task_id))
            kept_limit = view.budget.limit.can_cover(view.budget.spent)
            return view.phase, kept_limit, seen.history_size_bytes, seen.history_length


async def run_round(shell: Shell, name: str, trouble: "FaultInjector") -> RoundResult:
    """Run all tasks."""
    settings, most, all_first = Settings(), 0, AT_ONCE >= TASKS
    server = await TemporalClient.connect(
        shell.settings["TEMPORAL_ADDRESS"], data_converter=build_client_data_converter(settings)
    )
    before = len(await asyncio.to_thread(shell.list_paid_turns))
    if all_first:
        await asyncio.to_thread(trouble.fleet.stop_agents)
    async with await Client.connect(settings) as client:
        load = LoadGenerator(client, server, name)
        began, worked, size = time.perf_counter(), trouble.fleet.measure_cpu_seconds(), database_bytes(trouble.postgres)
        heard, counted = trouble.fleet.heartbeats(), count_transactions(trouble.postgres)
        working = asyncio.gather(*map(load.run_task, range(TASKS)))
        if all_first:
            await load.all_submitted.wait()
            print(f"{name}: {TASKS} tasks were submitted in {time.perf_counter() - began:.0f} s", flush=True)
            await asyncio.to_thread(trouble.fleet.start_agents)
            began = time.perf_counter()
        disturbing = asyncio.create_task(trouble.run()) if name == "killed" else None
        quiet_times: list[float] = []
        quiet = asyncio.create_task(run_quiet_tenant(quiet_times, name))
        while not working.done():
            most = max(most, await asyncio.to_thread(count_connections, trouble.postgres))
            trouble.fleet.record_memory()
            await asyncio.wait([working], timeout=LOOK)
        phases, kept, sizes, events = zip(*(await working), strict=True)
        took = time.perf_counter() - began
        quiet.cancel()
        await asyncio.gather(quiet, return_exceptions=True)
        worked = {name: after - worked.get(name, 0.0) for name, after in trouble.fleet.measure_cpu_seconds().items()}
        heard = trouble.fleet.heartbeats() - heard
        commits, rollbacks = count_transactions(trouble.postgres)
    if disturbing is not None:
        disturbing.cancel()
        await asyncio.gather(disturbing, return_exceptions=True)
    turns = len(await asyncio.to_thread(shell.list_paid_turns)) - before
    grown = database_bytes(trouble.postgres) - size
    counted = (commits - counted[0], rollbacks - counted[1])
    rows = count_rows(trouble.postgres, shell.settings["DATABASE_URL"])
    return RoundResult(
        name, took, turns, phases, kept, sizes, events, most, worked, heard, grown, counted, quiet_times, rows
    )


async def run_quiet_tenant(times: list[float], name: str, tasks: int = sys.maxsize) -> None:
    """Run one task of the quiet tenant after the other, and note how many seconds each took.

    Args:
        times: Gets the seconds.
        name: Names the session.
        tasks: Number of tasks; by default, until it is cancelled.
    """
    settings = Settings(tenant="quiet")
    server = await TemporalClient.connect(
        os.environ["TEMPORAL_ADDRESS"], data_converter=build_client_data_converter(settings)
    )
    async with await Client.connect(settings) as client:
        for number in range(tasks):
            asked = TaskRequest(
                question=QUESTION,
                tenant=settings.tenant,
                session=name,
                request_id=f"quiet-{name}-{number}",
                budget=BUDGET,
                window=WINDOW,
            )
            began = time.perf_counter()
            task_id = (await submit_with_retry(client, asked)).task_id
            await retry_while_busy(server.get_workflow_handle(task_id).result)
            times.append(time.perf_counter() - began)
            await asyncio.sleep(QUIET_PAUSE)


async def submit_with_retry(client: Client, asked: TaskRequest) -> SubmittedTask:
    """Submit the task. The same request finds the same task, so that it may be repeated."""
    return await retry_while_busy(lambda: client.submit(asked, DOCUMENTS))


async def retry_while_busy(call: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Return the result of the call, which is repeated while the database, a worker or the server does not answer."""
    while True:
        try:
            return await call()
        except (StoreUnavailable, Unreachable):
            await asyncio.sleep(LOOK)
        except RPCError as error:
            if error.status not in {RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.UNAVAILABLE}:
                raise
            await asyncio.sleep(LOOK)


@dataclass
class FaultInjector:
    """Kills workers in turn, and once each fails what they stand on."""

    fleet: WorkerFleet
    postgres: PostgresServer
    qdrant: QdrantStub
    turn: int = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        kinds = [(queue, number) for number in range(OF_EACH) for queue in QUEUES]
        while True:
            await asyncio.sleep(KILL_EVERY)
            back = await asyncio.to_thread(self.fleet.kill, *kinds[self.turn % len(kinds)])
            self.turn += 1
            if self.turn == 2:
                cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name <> 'psql'"
                await asyncio.to_thread(self.postgres.run, cut)
            if self.turn == 3:
                self.qdrant.fail_next(REFUSED_REQUESTS, 503)
            await asyncio.to_thread(wait_until, back, 300, "readiness of the worker that was killed")


def count_connections(postgres: PostgresServer) -> int:
    """That the database has, ours left out."""
    return int(postgres.run("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")) - 1


def count_transactions(postgres: PostgresServer) -> tuple[int, int]:
    """Commits and rollbacks of all databases but the server's own, reads among the latter."""
    counted = "SELECT sum(xact_commit), sum(xact_rollback) FROM pg_stat_database WHERE datname LIKE 'test%'"
    commits, rollbacks = map(int, postgres.run(counted).split("|"))
    return commits, rollbacks


def count_rows(postgres: PostgresServer, url: str) -> int:
    """Rows of the store at this URL, as PostgreSQL's statistics have them."""
    return int(postgres.run("SELECT sum(n_live_tup) FROM pg_stat_user_tables", url.rpartition("/")[2]))


def database_bytes(postgres: PostgresServer) -> int:
    """How large all databases are."""
    return int(postgres.run("SELECT sum(pg_database_size(oid)) FROM pg_database"))


def measure(folder: Path) -> None:
    """Both rounds, and the table."""
    with ExitStack() as stack:
        model = stack.enter_context(run_messages_server(delay=DELAY))
        postgres = stack.enter_context(run_postgres_server())
        qdrant = stack.enter_context(run_qdrant_server())
        settings = {
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": model.url,
            "DATABASE_URL": postgres.new_database(),
            "QDRANT_URL": qdrant.url,
            "WAYSTATION_QDRANT_GRPC_PORT": "0",
            "WAYSTATION_KEY": "17" * 32,
            "WAYSTATION_AGENTS_AT_ONCE": AGENTS,
            "TEMPORAL_ADDRESS": stack.enter_context(run_temporal_server(folder)),
        }
        shell = Shell(folder / "home", settings)
        assert shell.run("store", "migrate").returncode == 0
        with shell.own_environment(), running_fleet(shell, folder) as workers:
            trouble = FaultInjector(workers, postgres, qdrant)
            alone: list[float] = []
            asyncio.run(run_quiet_tenant(alone, "alone", QUIET_ALONE))
            rounds = [asyncio.run(run_round(shell, name, trouble)) for name in ROUNDS]
            repeated = len(model.answered) - len(shell.list_paid_turns())
    _show(rounds, workers, repeated)
    _show_quiet_tenant(alone, rounds)


def _show_quiet_tenant(alone: Sequence[float], rounds: Sequence[RoundResult]) -> None:
    usual = statistics.median(alone)
    rows = [("alone", len(alone), f"{usual:.1f} s", f"{max(alone):.1f} s", "1.00")] + [
        (
            one.name,
            len(one.quiet),
            f"{statistics.median(one.quiet):.1f} s",
            f"{max(one.quiet):.1f} s",
            f"{statistics.median(one.quiet) / usual:.2f}",
        )
        for one in rounds
        if one.quiet
    ]
    print_table("A task of a quiet tenant", ("round", "tasks", "median", "slowest", "ratio"), rows)


def _show(rounds: Sequence[RoundResult], workers: WorkerFleet, repeated: int) -> None:
    rates = [one.turns / one.seconds for one in rounds]
    rows = [
        (
            one.name,
            f"{one.seconds:.0f} s",
            f"{one.turns:,}",
            f"{rate:.1f}",
            f"{rate / rates[0]:.2f}",
            f"{sum(phase is TaskPhase.DONE for phase in one.phases)} of {TASKS}",
            one.kept_limits.count(False),
            f"{statistics.median(one.history_bytes) / 1_000:.0f} kB",
            f"{statistics.median(one.history_events):.0f}",
            one.connections,
        )
        for one, rate in zip(rounds, rates, strict=True)
    ]
    head = (
        "round",
        "duration",
        "turns",
        "turns a second",
        "ratio",
        "done",
        "over their limit",
        "history of a task",
        "its events",
        "connections",
    )
    print_table(
        f"{TASKS} tasks, {AT_ONCE} at once, {OF_EACH} processes for each queue, {workers.kills} kills", head, rows
    )
    first = rounds[0]
    costs = [
        (name, f"{seconds:.0f} s", f"{seconds / first.turns * 1_000:.0f} ms", f"{seconds / first.seconds:.2f}")
        for name, seconds in sorted(first.processor.items(), key=itemgetter(1), reverse=True)
        if seconds >= LOOK
    ]
    print_table(f"Processor time, {first.name}", ("part", "in all", "a turn", "processors"), costs)
    print(
        f"\n{first.heartbeats:,} heartbeats reached the server ({first.name}), "
        f"{first.heartbeats / TASKS / first.seconds * 60:.1f} a task and minute."
    )
    commits, rollbacks = (count / first.turns for count in first.transactions)
    print(f"\nOf a turn PostgreSQL counted {commits:.1f} commits and {rollbacks:.1f} rollbacks ({first.name}).")
    print(f"\nThe databases grew by {first.database_bytes / TASKS / 1_000:,.0f} kB a task.")
    sizes = ", ".join(f"{queue} {size:.0f} MB" for queue, size in sorted(workers.most_megabytes.items()))
    committed = sum(one.turns for one in rounds)
    print(f"\nLargest process of each kind: {sizes}.")
    print(
        f"{committed:,} turns were committed; the model gave {repeated} replies more, to workers that were killed: "
        f"{repeated / committed:.2%}."
    )
    print(f"The store had {rounds[-1].rows:,} rows at the end.")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name))
