"""How a process is told to stop."""

import asyncio
import signal


def stop_on_signals() -> None:
    """Let Ctrl-C, SIGTERM and a closed terminal cancel the current task, so that everything winds down."""
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
