"""Measures how many tasks one session admits a second: `python -m benchmarks.submissions [SECONDS]`.

One client submits tasks without documents to one session, one after another or eight at once, on a Temporal server of
its own. Workers admit the tasks and start them, but no worker plans: the tasks then wait, and take no processor time
from the measurement. The baseline is a bare workflow on the same server, with an Update that does what a session must:
start a child workflow and reply; and the same Update without the child. The bare workflow runs without a sandbox.
"""

import asyncio
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from temporalio import workflow
from temporalio.client import Client as Temporal
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from benchmarks.budgets.tables import describe_machine, print_table
from tests.support.qdrant_server import run_qdrant_server
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.runtime.temporal.dev_server import find_temporal_executable
from waystation.tasks.task import TaskRequest
from waystation.workers.wiring import run_configured_workers

SECONDS = 20.0
AT_ONCE = (1, 8)
QUEUE = "bare"
SETTLE_SECONDS = 2.0
MAX_SUBMISSIONS = 1_500
"""A run of a workflow accepts at most 2,000 Updates."""


@workflow.defn
class BareTask:
    """A child that waits, as a task without a planner does."""

    @workflow.run
    async def run(self) -> None:
        """Wait."""
        await workflow.wait_condition(lambda: False)


@workflow.defn
class BareSession:
    """Accepts submissions by Updates."""

    @workflow.run
    async def run(self) -> None:
        """Wait."""
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def submit(self, task_id: str) -> str:
        """Start the child, and reply."""
        await workflow.start_child_workflow(
            BareTask.run, id=task_id, parent_close_policy=workflow.ParentClosePolicy.ABANDON
        )
        return task_id

    @workflow.update
    async def accept(self, task_id: str) -> str:
        """Reply."""
        return task_id


async def measure_rate(submit: Callable[[str], Awaitable[object]], at_once: int, seconds: float) -> float:
    """Return the submissions a second."""
    numbers, done, start = itertools.count(), 0, time.monotonic()

    async def submit_again_and_again(name: int) -> None:
        nonlocal done
        while time.monotonic() - start < seconds and done < MAX_SUBMISSIONS:
            await submit(f"{name}-{next(numbers)}")
            done += 1

    await asyncio.gather(*map(submit_again_and_again, range(at_once)))
    return done / (time.monotonic() - start)


async def measure_baselines(server: Temporal, seconds: float) -> dict[str, list[float]]:
    """Return the rates of the bare workflow, for each number at once."""
    rates: dict[str, list[float]] = {}
    async with Worker(
        server, task_queue=QUEUE, workflows=[BareSession, BareTask], workflow_runner=UnsandboxedWorkflowRunner()
    ):
        for name, update in (("with a child", "submit"), ("without a child", "accept")):
            for at_once in AT_ONCE:
                session = await server.start_workflow(BareSession.run, id=f"bare-{update}-{at_once}", task_queue=QUEUE)
                await session.execute_update(update, f"{session.id}-first")  # pyright: ignore[reportUnknownMemberType]: a bare generic

                async def submit(task_id: str, of: str = session.id, update: str = update) -> None:
                    await server.get_workflow_handle(of).execute_update(update, f"{of}-{task_id}")  # pyright: ignore[reportUnknownMemberType]: a bare generic

                rates.setdefault(name, []).append(await measure_rate(submit, at_once, seconds))
    return rates


async def measure_sessions(home: Path, seconds: float) -> list[float]:
    """Return the rates of a session, for each number at once."""
    rates = list[float]()
    with run_qdrant_server() as qdrant:
        settings = Settings(home=home, offline=True, queues="workflows,context", qdrant_url=qdrant.url)
        async with run_configured_workers(settings), await Client.connect(settings) as client:
            for at_once in AT_ONCE:

                async def submit(name: str, session: str = f"session-{at_once}") -> None:
                    request = TaskRequest(
                        question="How deep is the bar?", session=session, request_id=name, budget=Limit(tokens=20_000)
                    )
                    await client.submit(request, ())

                await submit("first")
                await asyncio.sleep(SETTLE_SECONDS)
                rates.append(await measure_rate(submit, at_once, seconds))
    return rates


async def measure(home: Path, seconds: float) -> None:
    """Print the rates."""
    async with await WorkflowEnvironment.start_local(  # pyright: ignore[reportUnknownMemberType]: a bare generic
        dev_server_existing_path=find_temporal_executable(), dev_server_log_level="error"
    ) as server:
        os.environ["TEMPORAL_ADDRESS"] = server.client.service_client.config.target_host
        bare = await measure_baselines(server.client, seconds)
        session = await measure_sessions(home, seconds)
    rows = [
        [f"baseline: an Update {name}", *(f"{rate:.1f}" for rate in rates), "1"] if name == "with a child" else
        [f"an Update {name}", *(f"{rate:.1f}" for rate in rates), _ratio(rates, bare["with a child"])]
        for name, rates in bare.items()
    ]  # fmt: skip
    rows.append(["a session", *(f"{rate:.1f}" for rate in session), _ratio(session, bare["with a child"])])
    head = ["what", *(f"{at_once} at once, a second" for at_once in AT_ONCE), "of the baseline"]
    print_table(f"Submissions to one workflow ({describe_machine()})", head, rows)


def _ratio(rates: list[float], baseline: list[float]) -> str:
    return ", ".join(f"{rate / base:.2f}" for rate, base in zip(rates, baseline, strict=True))


def main() -> None:
    """Measure, in a folder that is then deleted."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder), seconds))
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash at exit


if __name__ == "__main__":
    main()
