"""Signals that stop a process, in a process of their own."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, signal
from waystation.workers.shutdown import stop_on_signals

async def main():
    stop_on_signals(lambda: print("again?", flush=True))
    print("ready", flush=True)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        print("winding down", flush=True)
        await asyncio.Event().wait() if SLOW else None

asyncio.run(main())
"""


def started(*, slow: bool, hangup_ignored: bool = False) -> subprocess.Popen[str]:
    ignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n" if hangup_ignored else ""
    program = [sys.executable, "-c", f"SLOW = {slow}\n{ignored}{PROGRAM}"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    assert line(process) == "ready"
    return process


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_winds_down_and_a_ctrl_c_after_it_ends_at_once(first: signal.Signals) -> None:
    with started(slow=True) as process:
        process.send_signal(first)
        said = {line(process)} if first != signal.SIGINT else {line(process), line(process)}
        assert said == {"winding down"} | ({"again?"} if first == signal.SIGINT else set())
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_what_runs_under_nohup_outlives_its_terminal() -> None:
    with started(slow=False, hangup_ignored=True) as process:
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGTERM)
        assert line(process) == "winding down"
        assert process.wait(30) == 0
