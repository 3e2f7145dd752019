"""What took too long to redact is known to every worker and after every restart, and to nobody by its words."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import select

from tests.support.store_fixtures import store_clock
from tests.support.store_values import make_task_request, make_task_row
from waystation.agents.redaction import RedactionRetryPolicy, TextRedactor
from waystation.erasure.erasure import ErasureQuery, ForgetOrder, PersonErasureOrder
from waystation.kernel.errors import RedactionBlockedError, RedactionFailed, RedactionTimeoutError
from waystation.privacy.policy import RedactionFailureMode, RedactionResult, TextDestination
from waystation.privacy.ports import SlowTextStore
from waystation.runtime.sql_store import SqlStore
from waystation.security.placeholders import compute_fingerprint
from waystation.store.schema import slow_texts
from waystation.testing.doubles import InMemorySlowTextStore

SLOW, FINE, TENANT = "passwords = [" * 3, "Nothing much.", make_task_row(make_task_request()).ref.tenant
RULES = "standard/1/60"
ROOT = Path(__file__).parents[2]


class Stuck:
    """Never comes back from the slow text."""

    def __init__(self) -> None:
        self.tried: list[Sequence[str]] = []

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        self.tried.append(texts)
        if SLOW in texts:
            raise RedactionTimeoutError("the redaction took too long")
        return tuple(RedactionResult(text=text) for text in texts)


def worker(slow: SlowTextStore, stuck: Stuck, then: RedactionFailureMode = "placeholder") -> TextRedactor:
    return TextRedactor(
        stuck, retry_policy=RedactionRetryPolicy(partial(compute_fingerprint, b"k" * 32), slow, lambda: 1, 6, then)
    )


@pytest.fixture(params=["double", "store"])
async def kept(request: pytest.FixtureRequest, store: SqlStore) -> SlowTextStore:
    return InMemorySlowTextStore() if request.param == "double" else store.build_slow_text_store(RULES)


async def test_times_are_counted_for_all_together_until_it_is_to_be_tried_again(kept: SlowTextStore) -> None:
    assert await kept.load_slow_texts() == {}
    assert await kept.record_timeout("t", "a") == 1
    assert await kept.record_timeout("t", "a") == 2
    assert await kept.record_timeout("t", "b") == 1
    assert await kept.load_slow_texts() == {"a": 2, "b": 1}
    await kept.reset_timeouts("t", "a")
    assert await kept.load_slow_texts() == {"b": 1}


async def test_two_workers_that_count_at_once_count_both(store: SqlStore) -> None:
    kept = [store.build_slow_text_store(RULES) for _ in range(8)]
    counted = await asyncio.gather(*(one.record_timeout("t", "a") for one in kept))
    assert sorted(counted) == [*range(1, 9)]


async def test_a_worker_that_starts_does_not_try_again_what_was_put_aside_alone_or_among_others(
    store: SqlStore, store_url: str
) -> None:
    first = Stuck()
    (aside, fine) = await worker(store.build_slow_text_store(RULES), first).redact(
        [SLOW, FINE], TextDestination.TOOL_RESULT, TENANT
    )
    assert (aside.timed_out, fine.text) == (True, FINE)
    again = await SqlStore.open(store_url, store_clock)
    second = Stuck()
    restarted = worker(again.build_slow_text_store(RULES), second)
    assert await restarted.redact([SLOW], TextDestination.COMPRESSED, TENANT) == (aside,)
    assert await restarted.redact([SLOW, FINE], TextDestination.TOOL_RESULT, TENANT) == (aside, fine)
    assert second.tried == [[FINE]]
    await again.aclose()


KILLED = """
import asyncio
from tests.privacy.test_slow_texts import RULES, SLOW, TENANT, Stuck, store_clock, worker
from waystation.runtime.sql_store import SqlStore
from waystation.privacy.policy import TextDestination

async def main():
    store = await SqlStore.open({url!r}, store_clock)
    await worker(store.build_slow_text_store(RULES), Stuck()).redact([SLOW], TextDestination.TOOL_RESULT, TENANT)
    print("put aside", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_neither_does_one_after_a_worker_that_was_killed(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'waystation.db'}"
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", KILLED.format(url=url)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as killed:
        assert killed.stdout is not None
        assert await asyncio.to_thread(killed.stdout.readline) == "put aside\n"
        killed.send_signal(signal.SIGKILL)
    store, stuck = await SqlStore.open(url, store_clock), Stuck()
    (aside,) = await worker(store.build_slow_text_store(RULES), stuck).redact(
        [SLOW], TextDestination.TOOL_RESULT, TENANT
    )
    assert aside.timed_out
    assert stuck.tried == []
    await store.aclose()


async def test_one_time_that_was_counted_before_a_restart_leaves_one(store: SqlStore) -> None:
    stuck = Stuck()
    patient = worker(store.build_slow_text_store(RULES), stuck)
    await patient.redact([SLOW], TextDestination.TOOL_RESULT, TENANT)
    (known,) = await store.build_slow_text_store(RULES).load_slow_texts()
    await store.build_slow_text_store(RULES).reset_timeouts(TENANT, known)
    await store.build_slow_text_store(RULES).record_timeout(TENANT, known)
    restarted = Stuck()
    await worker(store.build_slow_text_store(RULES), restarted).redact([SLOW], TextDestination.TOOL_RESULT, TENANT)
    assert (len(stuck.tried), len(restarted.tried)) == (2, 1)


@pytest.mark.parametrize("rules", ["strict/1/60", "standard/2/60", "standard/1/120"])
async def test_under_another_policy_other_rules_or_more_time_it_is_tried_again(store: SqlStore, rules: str) -> None:
    await worker(store.build_slow_text_store(RULES), Stuck()).redact([SLOW], TextDestination.TOOL_RESULT, TENANT)
    stuck = Stuck()
    await worker(store.build_slow_text_store(rules), stuck).redact([SLOW], TextDestination.TOOL_RESULT, TENANT)
    assert len(stuck.tried) == 2


async def test_what_a_person_is_to_see_to_is_tried_again_when_it_comes_again(store: SqlStore) -> None:
    for _ in range(2):
        stuck = Stuck()
        with pytest.raises(RedactionBlockedError):
            await worker(store.build_slow_text_store(RULES), stuck, "pause").redact(
                [SLOW], TextDestination.TOOL_RESULT, TENANT
            )
        assert len(stuck.tried) == 2


async def test_texts_of_signs_alone_are_not_one_text(store: SqlStore) -> None:
    class StuckAtBrackets(Stuck):
        async def redact(
            self, texts: Sequence[str], destination: TextDestination, tenant: str
        ) -> tuple[RedactionResult, ...]:
            if "[[[" in texts:
                raise RedactionTimeoutError("the redaction took too long")
            return await super().redact(texts, destination, tenant)

    patient = worker(store.build_slow_text_store(RULES), StuckAtBrackets())
    aside, rule, empty = await patient.redact(["[[[", "---", ""], TextDestination.TOOL_RESULT, TENANT)
    assert (aside.timed_out, rule.text, empty.text) == (True, "---", "")


async def test_while_the_store_is_away_the_work_waits() -> None:
    away = InMemorySlowTextStore()
    away.failing = True
    with pytest.raises(RedactionFailed, match="the list of texts that take too long to redact cannot be read"):
        await worker(away, Stuck()).redact([FINE], TextDestination.TOOL_RESULT, TENANT)


@pytest.mark.parametrize("how", ["forget", "erase"])
async def test_whoever_is_forgotten_leaves_nothing_of_slow_texts_and_other_tenants_keep_theirs(
    store: SqlStore, how: str
) -> None:
    store_id = await store.get_store_id()
    kept = make_task_row(make_task_request())
    own = kept.replace(ref=kept.ref.replace(store_id=store_id))
    await store.register_task(own, [])
    for tenant in (TENANT, "another"):
        await worker(store.build_slow_text_store(RULES), Stuck()).redact([SLOW], TextDestination.TOOL_RESULT, tenant)
    if how == "forget":
        order = ForgetOrder(store_id=store_id, tenant=TENANT, task_ids=(own.ref.task_id,), everything=True)
        await store.forget_tasks(order)
    else:
        person = PersonErasureOrder(
            store_id=store_id, tenant=TENANT, wanted_placeholder="<WANTED_0123456789ab>", placeholders=()
        )
        await store.erase_person(person, ErasureQuery("Ada Lovelace"))
    async with store.database.read() as connection:
        rows = await connection.execute(select(slow_texts.c.tenant, slow_texts.c.fingerprint))
        assert [(one.tenant, SLOW in one.fingerprint) for one in rows] == [("another", False)]
