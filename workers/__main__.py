"""`python -m workers`: all workers in this process until SIGINT or SIGTERM."""

import asyncio
import os
import signal
import sys

from waystation.domain.errors import WaystationError
from waystation.settings import Settings
from workers.wiring import run_until_stopped


async def main() -> None:
    """Work until told to stop, then let the legs reach a turn boundary."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await run_until_stopped(Settings(), stop)


if __name__ == "__main__":
    code = 0
    try:
        asyncio.run(main())
    except WaystationError as error:
        sys.stderr.write(f"{error}\n")
        code = 3
    sys.stderr.flush()
    # The SDK's native runtime can crash while the interpreter winds down; the exit code must be ours.
    os._exit(code)
