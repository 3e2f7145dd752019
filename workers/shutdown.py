"""How a process is told to stop."""

import asyncio
import os
import signal
import stat
from collections.abc import Callable

INTERRUPTED = 130
"""Exit code of what was ended at once, as shells have it."""
_OUTPUTS = (1, 2)


def stop_on_signals(told: Callable[[], None] | None = None) -> None:
    """Let Ctrl-C, SIGTERM and a closed terminal cancel the current task once, so that everything winds down.

    Ctrl-C while it does ends the process at once, with exit code 130, as a kill does: nothing that is kept suffers, and
    its children end with it. Other signals that come twice change nothing. `told` says so to who pressed Ctrl-C once.
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
        # `nohup` has closed terminals ignored, and who asked for that is not to be stopped by one.
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop, number)


def _leave_terminal() -> None:
    """Have nothing written to a terminal that is gone: that fails, and would break off what winds down."""
    for output in _OUTPUTS:
        if stat.S_ISCHR(os.fstat(output).st_mode):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, output)
            os.close(nowhere)
