"""What a waiting agent does for its prompt cache: it is read while subagents work, and not while a person is asked."""

from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import PROMPT_TOKENS, TAKE_NOTE_CALL, CallGate, ModelCall
from tests.support.temporal_platform import TaskHandle, run_platform, wait_until
from tests.support.workflow_history import fetch_events, list_event_kinds, list_timer_summaries
from waystation.kernel.usage import Usage
from waystation.models.ports import ModelRequest, ModelResponse, StopReason
from waystation.models.profiles import Price, TokenRates
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskConfig, TaskPhase
from waystation.testing.doubles import make_scripted_response
from waystation.workflows import agent_runner
from waystation.workflows.task import TaskWorkflow

ACTIVITY = "KeepCacheWarm"
TIMER = '"harbours: keep its prompt cache warm"'
SCRIPTS = {"harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]]}


@dataclass
class WarmingModel(DelegatingTaskModel):
    """A scripted model whose endpoint keeps caches warm."""

    read: list[ModelRequest] = field(default_factory=list[ModelRequest])
    """Requests without a reply."""

    async def warm_cache(self, request: ModelRequest) -> ModelResponse | None:
        """See `CacheWarmingModel`."""
        self.read.append(request)
        return make_scripted_response(usage=Usage(cache_read=PROMPT_TOKENS), stop=StopReason.MAX_TOKENS)


@pytest.fixture(autouse=True)
def short_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits for four minutes."""
    monkeypatch.setattr(agent_runner, "REFRESH_INTERVAL", timedelta(seconds=0.5))


def with_prices(config: TaskConfig, reads: int) -> TaskConfig:
    """Prices at which a prefix of one prompt is worth so many reads."""
    ten = Decimal(10)
    rates = TokenRates(input=ten, output=ten, cache_write=ten * (reads + 1), cache_read=ten)
    return config.replace(default=config.default.replace(prices=(Price(model="crew", rates=rates),)))


async def count_activities(task: TaskHandle) -> int:
    return list_event_kinds(await fetch_events(task)).count(ACTIVITY)


async def count_timers(task: TaskHandle) -> int:
    return list_timer_summaries(await fetch_events(task)).count(TIMER)


async def test_a_parent_reads_its_cache_now_and_then_until_that_has_cost_as_much_as_a_rewrite(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    gate, reads = CallGate(ModelCall("harbours.1", 1)), 3
    crew = WarmingModel(before=gate, scripts=SCRIPTS)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=with_prices(make_delegating_task_config(), reads))
        task = counter.get_task_handle()

        async def has_all() -> bool:
            return len(crew.read) == reads

        await wait_until(has_all)
        gate.opened.set()
        progress = await task.result()
        activities, timers = await count_activities(task), await count_timers(task)
        charges = await counter.store.list_task_charges(task.id, SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.DONE
    assert (activities, timers, len(crew.read)) == (reads, reads, reads)
    warm = [(entry.agent, entry.charge.key) for entry in charges.paid if entry.charge.kind == "warm"]
    assert warm == [("harbours", f"warm-1-{number}") for number in range(1, reads + 1)]
    (line,) = [line for line in charges.cost_breakdown.lines if line.kind == "warm"]
    assert (line.agent, line.calls, line.usage.cache_read) == ("harbours", reads, reads * PROMPT_TOKENS)


async def test_while_a_person_is_asked_no_cache_is_read(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    long = [*[[TAKE_NOTE_CALL]] * 100, [SUBMIT_FINDINGS_CALL]]
    crew = WarmingModel(scripts={**SCRIPTS, "harbours.1": long})
    config = with_prices(make_delegating_task_config(budget=50_000, agent_budget=20_000), 1_000)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=config)
        task = counter.get_task_handle()

        async def let_go() -> bool:
            progress = await task.query(TaskWorkflow.progress)
            kinds = list_event_kinds(await fetch_events(task))
            ended = kinds.count("timer_fired") + kinds.count("timer_canceled")
            no_call_followed = await count_timers(task) > kinds.count(ACTIVITY)
            return progress.phase is TaskPhase.PAUSED and no_call_followed and ended == kinds.count("timer_started")

        await wait_until(let_go)
        pending = (await task.describe()).raw_description.pending_activities
        timers, activities = await count_timers(task), await count_activities(task)
        await task.cancel()
    assert not pending
    assert (activities, len(crew.read)) == (timers - 1, timers - 1), "the last timer led to no call"
