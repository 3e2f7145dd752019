"""Terminals that are closed and Ctrl-C that is pressed twice: tasks go on, and no process is left behind."""

import fcntl
import os
import pty
import re
import signal
import subprocess
import termios
from pathlib import Path

import psutil
import pytest

from tests.end_to_end.messages_server import HoldableMessagesServer, run_server
from tests.end_to_end.shell import ROOT, WAYSTATION, Shell, wait_for_exit, wait_until
from tests.end_to_end.survey_documents import BROAD_QUESTION, write_survey_documents
from waystation.config.settings import Settings
from waystation.runtime.temporal.run_file import read_run_file

READY, TASK = "Next", re.compile(r"task-[0-9a-f]{16}")


class Terminal:
    """A terminal with one command in it, which it is the controlling terminal of."""

    def __init__(self, shell: Shell, *arguments: str) -> None:
        self._master, terminal = pty.openpty()
        os.set_blocking(self._master, False)
        self._said = b""
        self.process = subprocess.Popen(
            [*WAYSTATION, *arguments],
            cwd=ROOT,
            env={**shell.environment, "TERM": "xterm"},
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  nothing but a system call
        )
        os.close(terminal)

    def said(self) -> str:
        """Everything so far."""
        try:
            while more := os.read(self._master, 65_536):
                self._said += more
        except OSError:  # nothing more now
            pass
        return self._said.decode(errors="replace")

    def close(self) -> int:
        """As somebody closes its window; the exit code of the command, negative where the signal ended it."""
        os.close(self._master)
        return self.process.wait(120)


def family(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def survivors(children: list[psutil.Process]) -> list[psutil.Process]:
    """Those that have not ended though they had time to."""
    assert children
    return psutil.wait_procs(children, timeout=30)[1]


@pytest.mark.timeout(900)
def test_tasks_outlive_closed_terminals_and_ctrl_c_and_no_process_outlives_its_platform(tmp_path: Path) -> None:
    documents, log = write_survey_documents(tmp_path / "survey"), tmp_path / "log"
    run_file = Settings(home=tmp_path / "home").run_file
    with run_server(HoldableMessagesServer(0.1)) as model:
        settings = {"ANTHROPIC_API_KEY": "a-key-for-tests", "ANTHROPIC_BASE_URL": model.url}
        shell = Shell(tmp_path / "home", settings)
        dev = Terminal(shell, "dev")
        wait_until(lambda: READY in dev.said(), 180, "the platform")
        submitting = Terminal(shell, "submit", BROAD_QUESTION, "--docs", str(documents), "--budget", "300k")
        wait_until(lambda: "working" in submitting.said() or "planning" in submitting.said(), 120, "the task")
        found = TASK.search(submitting.said())
        assert found is not None
        task = found[0]
        watching = Terminal(shell, "watch", task)
        wait_until(lambda: task in watching.said(), 120, "what is watched")
        assert (submitting.close(), watching.close()) == (-signal.SIGHUP, -signal.SIGHUP)

        interrupted = shell.start("watch", task, log=log)
        wait_until(lambda: f"{task} is" in log.read_text(), 120, "what is watched")
        interrupted.send_signal(signal.SIGINT)
        assert wait_for_exit(interrupted, log) == 130
        assert f"The task continues: `waystation watch {task}` follows it again." in log.read_text()

        model.goes_on.set()
        wait_until(lambda: bool(shell.list_paid_turns()), 180, "a turn after all terminals were closed")
        children = family(dev.process.pid)
        assert dev.close() == 0
        assert survivors(children) == []
        assert not run_file.exists()

        up = Terminal(shell, "up")
        wait_until(run_file.exists, 180, "the platform in the background")
        up.close()
        try:
            run = read_run_file(run_file)
            assert run is not None
            assert run.is_server_alive
            paid = len(shell.list_paid_turns())
            wait_until(lambda: len(shell.list_paid_turns()) > paid, 180, "a turn more")
        finally:
            assert shell.run("down").returncode == 0

        model.goes_on.clear()
        asked = len(model.answered)
        dev_log = tmp_path / "dev.log"
        again = shell.start("dev", log=dev_log)
        wait_until(lambda: READY in dev_log.read_text(), 180, "the platform once more")
        children = family(again.pid)
        again.send_signal(signal.SIGINT)
        wait_until(lambda: "press Ctrl-C again to stop at once" in dev_log.read_text(), 60, "the word that it stops")
        again.send_signal(signal.SIGINT)
        assert wait_for_exit(again, dev_log) == 130
        assert survivors(children) == []
        assert len(model.answered) == asked
