"""Measure all proofs about budgets and pauses, or those that are named: `python -m benchmarks.budgets [NAME …]`."""

import asyncio
import sys
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from benchmarks.budgets import fairness, fan_out, first_pause, history, pauses, schedules, throughput
from benchmarks.proofs import run_proofs
from tests.support.temporal_platform import start_dev_server

LONGEST = 40 * 60
"""Seconds for one proof."""


async def on_a_server(proof: Callable[[Client], Awaitable[None]]) -> None:
    """Run a proof on a server of its own."""
    async with start_dev_server() as client:
        await proof(client)


def in_time(proof: Callable[[], Awaitable[None]]) -> None:
    """Run a proof on a loop of its own. Raises TimeoutError where it takes too long."""

    async def run() -> None:
        async with asyncio.timeout(LONGEST):
            await proof()

    asyncio.run(run())


PROOFS: dict[str, Callable[[], None]] = {
    "fairness": lambda: in_time(fairness.prove),
    "fan_out": lambda: in_time(lambda: on_a_server(fan_out.prove)),
    "first_pause": lambda: in_time(lambda: on_a_server(first_pause.prove)),
    "history": lambda: in_time(lambda: on_a_server(history.prove)),
    "schedules": lambda: in_time(lambda: on_a_server(schedules.prove)),
    "throughput": lambda: in_time(lambda: on_a_server(throughput.prove)),
    "pauses": lambda: in_time(pauses.prove),
}


if __name__ == "__main__":
    # The SDK warns of each payload of the naive baseline, which is too large on purpose.
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)))
    run_proofs("benchmarks.budgets", PROOFS, sys.argv[1:])
