"""Runs a task by the commands of a checkout: its own code in processes of its own, on a home folder of its own."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from pydantic import JsonValue

from benchmarks.checkout import Checkout
from benchmarks.live.documents import Document
from benchmarks.live.model import ScriptedModel
from benchmarks.live.provider import Provider, RecordedRequest
from tests.end_to_end.messages_server import run_server

QUESTION = "What limits the harbours of the coast, by which figures, and where do the reports contradict each other?"
_OVER = {"done", "partial", "cancelled", "failed"}
_QUIET = 4.0
"""Seconds without a request after which the task is looked at: a command for that costs processor time itself."""
_LOOK = 0.5
_COMMAND_SECONDS = 180
_START_SECONDS = 180
_STOP_SECONDS = 60
Answer = dict[str, JsonValue]


class RunResult(NamedTuple):
    """One run."""

    name: str
    calls: Sequence[RecordedRequest]
    refusals: Sequence[str]
    phase: str
    """In which the task ended."""
    grants: int
    """Requests for more budget, all of which were granted as asked."""
    limit: int
    """Tokens that the task could spend in the end, with what was granted."""
    sections: int
    """Headings of the report that was delivered; 0 if none was."""
    seconds: float


def build_settings(url: str) -> dict[str, str]:
    """Of every command of a run: the provider, and no pages."""
    return {"ANTHROPIC_API_KEY": "a-key-for-nobody", "ANTHROPIC_BASE_URL": url, "WAYSTATION_PAGES": "false"}


@dataclass(frozen=True)
class _Platform:
    checkout: Checkout
    home: Path
    url: str

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command. Raises CalledProcessError where it fails, and prints what it said."""
        done = subprocess.run(
            [*self.checkout.command, *arguments], cwd=self.checkout.root, text=True, capture_output=True, check=False,
            env=self.checkout.environment(self.home, build_settings(self.url)), timeout=_COMMAND_SECONDS,
        )  # fmt: skip
        if done.returncode not in {0, 3}:  # 3: there is no server yet, or the task did not end well
            print(done.stdout, done.stderr, file=sys.stderr)
            done.check_returncode()
        return done

    def submit(self, documents: Path, options: Sequence[str], deadline: float) -> str:
        """The id of the task, as soon as the platform is up. Raises TimeoutError."""
        asked = ("submit", QUESTION, "--docs", str(documents), *options, "--request-id", "live", "--detach", "--json")
        while time.monotonic() < deadline:
            if said := self.run(*asked).stdout:
                return str(cast("Answer", json.loads(said))["task_id"])
            time.sleep(_LOOK)
        raise TimeoutError(f"{self.checkout.name}: no task could be submitted")

    def json(self, *arguments: str) -> Answer:
        """What a command says."""
        return cast("Answer", json.loads(self.run(*arguments, "--json").stdout))


def measure(checkout: Checkout, documents: Sequence[Document], options: Sequence[str], seconds: float) -> RunResult:
    """Submit the question with these options of `submit`, and see it through. Raises TimeoutError."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="live-") as folder,
        run_server(Provider(script=ScriptedModel(documents))) as provider,
        _platform(checkout, Path(folder) / "home", provider.url) as platform,
    ):
        sources = Path(folder) / "documents"
        sources.mkdir()
        for document in documents:
            (sources / document.name).write_text(document.text)
        task = platform.submit(sources, options, began + _START_SECONDS)
        phase, grants = _see_through(platform, provider, task, began + seconds)
        limit = _limit(platform.json("show", task))
        report = platform.run("report", task).stdout if phase in {"done", "partial"} else ""
        sections = sum(line.startswith("## ") for line in report.splitlines())
        took = time.monotonic() - began
        return RunResult(checkout.name, tuple(provider.calls), provider.refusals, phase, grants, limit, sections, took)


@contextmanager
def _platform(checkout: Checkout, home: Path, url: str) -> Generator[_Platform]:
    """Until the block ends. What it started ends with it, also where it does not stop when it is asked to."""
    platform, log = _Platform(checkout, home, url), home.with_name("dev.log")
    with log.open("wb") as said:
        dev = subprocess.Popen(
            [*checkout.command, "dev"], cwd=checkout.root, env=checkout.environment(home, build_settings(url)),
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
        )  # fmt: skip
    try:
        while not (home / "run.json").exists():
            if dev.poll() is not None:
                raise RuntimeError(f"{checkout.name}: `dev` ended: {log.read_text()[-2_000:]}")
            time.sleep(_LOOK)
        yield platform
    finally:
        dev.terminate()
        try:
            dev.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            dev.kill()
            dev.wait()


def _see_through(platform: _Platform, provider: Provider, task: str, deadline: float) -> tuple[str, int]:
    """The phase in which the task ended, and how many requests were granted."""
    grants = 0
    while time.monotonic() < deadline:
        _until_quiet(provider, deadline)
        seen = platform.json("show", task)
        if (phase := str(seen["phase"])) in _OVER:
            return phase, grants
        if waiting := _waiting(seen):
            platform.run("approve", task, "--all")
            grants += waiting
    raise TimeoutError(f"{platform.checkout.name}: the task is not over in time")


def _limit(seen: Answer) -> int:
    return cast("dict[str, dict[str, int]]", seen["budget"])["limit"]["tokens"]


def _waiting(seen: Answer) -> int:
    requests = cast("list[Answer]", seen["approvals"])
    return sum(request["decision"] == "pending" for request in requests)


def _until_quiet(provider: Provider, deadline: float) -> None:
    calls, since = -1, time.monotonic()
    while time.monotonic() < min(since + _QUIET, deadline):
        if len(provider.calls) != calls:
            calls, since = len(provider.calls), time.monotonic()
        time.sleep(_LOOK)
