"""A worker is stopped while a call of the model is in flight: the call is paid, so it is not thrown away."""

import asyncio
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client

from tests.support.task_model import WORK_TOKENS, CallGate, ModelCall, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, open_activity_deps, run_all_workers
from waystation.config.settings import Settings
from waystation.tasks.task import TaskPhase
from waystation.testing.doubles import PlainRedactor
from waystation.workers.queues import DEV_TIMING, get_worker_timing
from waystation.workflows.options import HEARTBEAT, LEG

HELD = ModelCall("harbours", 3)


async def test_a_call_in_flight_that_ends_within_the_models_patience_is_kept_when_its_worker_stops(
    server: Client, tmp_path: Path
) -> None:
    gate, stop = CallGate(HELD), asyncio.Event()
    crew = ScriptedTaskModel(before=gate)
    async with open_activity_deps(tmp_path, PlainRedactor({}), crew) as parts:
        counter = TaskSubmitter(server, parts.store)

        async def serve() -> None:
            async with run_all_workers(server, parts, timing=get_worker_timing(Settings())):
                await stop.wait()

        stopped = asyncio.create_task(serve())
        await counter.submit(under=make_task_config())
        await gate.reached.wait()
        stop.set()
        await asyncio.wait([stopped], timeout=DEV_TIMING.graceful_shutdown_timeout.total_seconds() + 5)
        waits = not stopped.done()
        gate.opened.set()
        await stopped
        async with run_all_workers(server, parts):
            ended = await counter.get_task_handle().result()
    assert waits
    assert ended.phase is TaskPhase.DONE
    assert crew.calls.count(HELD) == 1
    assert ended.totals.spent.tokens == WORK_TOKENS


def test_workers_for_a_team_wait_as_long_as_a_model_may_be_silent_unless_told_otherwise() -> None:
    assert get_worker_timing(Settings()).graceful_shutdown_timeout == timedelta(
        seconds=Settings().model_patience_thinking
    )
    assert get_worker_timing(Settings(model_patience=700)).graceful_shutdown_timeout == timedelta(seconds=700)
    assert get_worker_timing(Settings(stop_grace=5)).graceful_shutdown_timeout == timedelta(seconds=5)
    assert DEV_TIMING.graceful_shutdown_timeout < get_worker_timing(Settings()).graceful_shutdown_timeout


def test_two_heartbeats_reach_the_server_within_the_time_in_which_a_dead_worker_is_detected() -> None:
    heartbeats = get_worker_timing(Settings()).heartbeat_throttle_interval
    assert timedelta(seconds=20) <= heartbeats <= timedelta(seconds=30)
    assert LEG.get("heartbeat_timeout") == HEARTBEAT
    assert 2 * heartbeats < HEARTBEAT
