"""Stops a process on signals."""

import asyncio
import os
import signal
import stat
from collections.abc import Callable

INTERRUPTED = 130
"""Exit code of an interrupted process, by the convention of shells."""
_OUTPUTS = (1, 2)


def stop_on_signals(told: Callable[[], None] | None = None) -> None:
    """Cancel the current task once on Ctrl-C, SIGTERM or a closed terminal, so that everything shuts down in order.

    A second Ctrl-C ends the process at once with exit code 130, like a kill: no stored data suffers, and its children
    end with it. Other repeated signals change nothing. `told` is called after the first Ctrl-C, to say so.
    """
    task, stopping = asyncio.current_task(), False

    def stop(number: int) -> None:
        nonlocal stopping
        if stopping and number == signal.SIGINT:
            os._exit(INTERRUPTED)
        if number == signal.SIGHUP:
            _leave_terminal()
        if task is None or stopping:
            return
        stopping = True
        task.cancel()
        if told is not None and number == signal.SIGINT:
            told()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # `nohup` ignores closed terminals, and a process started with it must not be stopped by one.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)


def _leave_terminal() -> None:
    """Redirect output away from a closed terminal: writing to it fails, and would abort the shutdown."""
    for output in _OUTPUTS:
        if stat.S_ISCHR(os.fstat(output).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)
