"""Redaction that takes too long, and redaction by several processes, some of which die or hang."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from benchmarks.privacy.corpus import sentences
from tests.support.temporal_platform import wait_until
from waystation.kernel.errors import RedactionFailed, TextRedactionError
from waystation.plugins.redaction import search_processes
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.plugins.redaction.rules import DetectionConfig, load_custom_rules
from waystation.plugins.redaction.search_protocol import MAX_ABANDONED_THREADS, WorkFailure, run_capturing_errors
from waystation.plugins.redaction.secrets import find_whole_text_matches
from waystation.privacy.policy import RedactionResult, TextDestination

KEY = b"k" * 32
HANGS = "this text hangs"
FINE = "Write to alice@example.com."
GERMAN = "Gestern traf Anna Schmidt ihren Bruder, und sie sprachen lange mit anna@example.com.\n" * 30
LONG = "\n".join(one.text for one in sentences(300, seed=5)) + "\n" + GERMAN
SLOW = r"recognizers: [{name: slow, supported_entity: SLOW, patterns: [{regex: '(?=x)(x+x+)+y', score: 1}]}]"


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set, one text hangs."""
    released = threading.Event()

    def hanging(text: str) -> object:
        if HANGS in text:
            released.wait()
        return find_whole_text_matches(text)

    monkeypatch.setattr("waystation.plugins.redaction.search.find_whole_text_matches", hanging)
    yield released
    released.set()


async def redacted(
    redactor: PresidioRedactor, text: str, destination: TextDestination = TextDestination.COMPRESSED
) -> RedactionResult:
    (result,) = await redactor.redact([text], destination, "t")
    return result


def test_one_redactor_serves_several_event_loops_after_each_other() -> None:
    async def many(loop: int) -> None:
        await asyncio.gather(*(redacted(redactor, f"{FINE} {loop} {number}") for number in range(4)))

    with closing(PresidioRedactor(KEY)) as redactor:
        for loop in range(2):
            asyncio.run(many(loop))


async def test_a_text_that_hangs_fails_by_its_time_and_others_go_on(release: threading.Event) -> None:
    with closing(PresidioRedactor(KEY, seconds=5)) as redactor:
        await redactor.warm_up()
        hanging = asyncio.create_task(redacted(redactor, HANGS))
        await asyncio.sleep(0)
        fine = asyncio.create_task(redacted(redactor, FINE))
        with pytest.raises(TextRedactionError, match=r"^redaction took more than 5\.\d+ s and was stopped"):
            await hanging
        assert "alice" not in (await fine).text
        release.set()
        assert (await redacted(redactor, HANGS)).text == HANGS


async def test_waiting_for_its_turn_costs_a_text_no_time(release: threading.Event) -> None:
    with closing(PresidioRedactor(KEY, seconds=5)) as redactor:
        await redactor.warm_up()
        texts = [redacted(redactor, f"{HANGS} {number}") for number in range(2)]
        *hung, fine = await asyncio.gather(*texts, redacted(redactor, FINE), return_exceptions=True)
        assert all(isinstance(one, TextRedactionError) for one in hung)
        assert isinstance(fine, RedactionResult)
    release.set()


async def test_where_too_many_hang_redaction_is_down_and_not_the_text_at_fault(release: threading.Event) -> None:
    with closing(PresidioRedactor(KEY, seconds=0.001)) as redactor:
        await redactor.warm_up()
        for number in range(MAX_ABANDONED_THREADS):
            with pytest.raises(TextRedactionError):
                await redacted(redactor, f"{HANGS} {number}")
        with pytest.raises(RedactionFailed, match="hangs in 32 threads") as down:
            await redacted(redactor, FINE)
        assert not isinstance(down.value, TextRedactionError)
        release.set()


def test_an_error_has_details_in_its_name_alone_also_across_processes() -> None:
    def broken() -> None:
        raise ValueError(HANGS)

    outcome = run_capturing_errors(broken)
    assert isinstance(outcome, WorkFailure)
    assert str(outcome.error) == "redaction failed with ValueError"
    assert HANGS.encode() not in pickle.dumps(outcome)
    assert outcome.error.__context__ is None


@pytest.fixture(scope="module")
def alone() -> Iterator[PresidioRedactor]:
    redactor = PresidioRedactor(KEY)
    yield redactor
    redactor.close()


async def test_processes_find_what_one_process_finds_and_end_with_the_redactor(alone: PresidioRedactor) -> None:
    with closing(PresidioRedactor(KEY, processes=2)) as redactor:
        for place in (TextDestination.COMPRESSED, TextDestination.TOOL_RESULT):
            assert await redacted(redactor, LONG, place) == await redacted(alone, LONG, place)
        assert (await redacted(redactor, LONG)).languages_without_names == ("de",)
        assert len(search_processes := redactor.process_ids) == 2
    assert redactor.process_ids == frozenset()
    assert not any(runs(pid) for pid in search_processes)
    with pytest.raises(RedactionFailed, match="the redactor is closed"):
        await redacted(redactor, LONG + "!")


async def test_a_process_that_dies_or_hangs_is_replaced(alone: PresidioRedactor) -> None:
    with closing(PresidioRedactor(KEY, seconds=5, processes=2)) as redactor:
        await redactor.warm_up()
        dead, hanging = redactor.process_ids
        os.kill(dead, signal.SIGKILL)
        assert await redacted(redactor, LONG) == await redacted(alone, LONG)
        assert dead not in redactor.process_ids
        os.kill(hanging, signal.SIGSTOP)
        with pytest.raises(TextRedactionError, match=r"^redaction took more than \d+"):
            await redacted(redactor, FINE + LONG)
        assert hanging not in redactor.process_ids
        assert await redacted(redactor, FINE + LONG) == await redacted(alone, FINE + LONG)


async def test_processes_end_while_nobody_asks_and_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_processes, "IDLE_SECONDS", 0.05)
    with closing(PresidioRedactor(KEY, seconds=5, processes=2)) as redactor:
        assert redactor.process_ids == frozenset(), "none begins before there is a text"
        first = await redacted(redactor, FINE)
        while redactor.process_ids:
            await asyncio.sleep(0.01)
        assert (await redacted(redactor, FINE + LONG)).text.startswith(first.text)


async def test_what_fails_in_a_process_fails_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(SLOW)
    slow = DetectionConfig(custom=load_custom_rules(tmp_path / "rules.yaml"))
    missing = DetectionConfig(models={"en": "xx_no_such_model"})
    with closing(PresidioRedactor(KEY, slow, processes=2)) as redactor:
        with pytest.raises(TextRedactionError, match="your own recogniser 'slow' took more than 2 s"):
            await redacted(redactor, "x" * 4_500)
        assert len([one for one in (await redacted(redactor, GERMAN)).spans if one.type == "EMAIL"]) == 30
    with closing(PresidioRedactor(KEY, missing, processes=2)) as redactor:
        with pytest.raises(RedactionFailed, match="the spaCy model xx_no_such_model is not installed") as caught:
            await redacted(redactor, LONG)
        assert not isinstance(caught.value, TextRedactionError)


PARENT = """
import asyncio, time
from waystation.plugins.redaction.redactor import PresidioRedactor

if __name__ == "__main__":
    redactor = PresidioRedactor(bytes(32), processes=2)
    asyncio.run(redactor.warm_up())
    print(*redactor.process_ids, flush=True)
    time.sleep(600)
"""


async def test_processes_end_with_a_worker_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))}
    with subprocess.Popen(
        [sys.executable, tmp_path / "parent.py"], stdout=subprocess.PIPE, text=True, env=os.environ | paths
    ) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in (await asyncio.to_thread(parent.stdout.readline)).split()]
        parent.kill()
    assert len(pids) == 2

    async def gone() -> bool:
        return not any(runs(pid) for pid in pids)

    await wait_until(gone)


def runs(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
