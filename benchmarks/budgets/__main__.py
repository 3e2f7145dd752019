"""Measure all proofs about budgets and pauses, or those that are named: `python -m benchmarks.budgets [NAME …]`."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

from temporalio.client import Client
from temporalio.runtime import LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from benchmarks.budgets import fan_out, history, pauses, throughput
from benchmarks.budgets.tables import machine
from tests.running import dev_server

LONGEST = 40 * 60
"""Seconds for one proof."""


async def on_a_server(proof: Callable[[Client], Awaitable[None]]) -> None:
    """Run a proof on a server of its own."""
    async with dev_server() as client:
        await proof(client)


PROOFS: dict[str, Callable[[], Awaitable[None]]] = {
    "fan_out": lambda: on_a_server(fan_out.prove),
    "history": lambda: on_a_server(history.prove),
    "throughput": lambda: on_a_server(throughput.prove),
    "pauses": pauses.prove,
}


async def main(names: list[str]) -> None:
    """Raises AssertionError where a proof misses its goal."""
    print(f"`python -m benchmarks.budgets {' '.join(names)}`: {machine()}")
    for name in names:
        start = time.perf_counter()
        async with asyncio.timeout(LONGEST):
            await PROOFS[name]()
        print(f"\n({name} took {time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(PROOFS):
        sys.exit(f"there is no proof {', '.join(sorted(unknown))}: there are {', '.join(PROOFS)}")
    # The SDK warns of each payload of the naive baseline, which is too large on purpose.
    quiet = LoggingConfig(filter=TelemetryFilter(core_level="ERROR", other_level="ERROR"))
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=quiet)))
    asyncio.run(main(sys.argv[1:] or list(PROOFS)))
