"""Metrics as Prometheus scrapes them, after real work on a real server."""

import asyncio
import dataclasses
import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
import yaml
from pydantic import BaseModel
from temporalio import workflow
from temporalio.client import Client
from temporalio.common import MetricMeter
from temporalio.envconfig import ClientConfigProfile
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment
from temporalio.worker import Worker

from tests.support.free_ports import find_free_port
from tests.support.prices import PRICES
from tests.support.task_model import (
    LARGE_WINDOW_CONFIG,
    SCRIPTED_PLAN,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    start_dev_server,
    wait_until,
)
from waystation.activities.activity_errors import LATE, translating_errors
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.kernel.errors import BadInput, ModelUnavailable, StoreError
from waystation.planning.plan import PLANNING_ID
from waystation.privacy.policy import TextDestination
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.runtime.temporal.metrics import TemporalMeter, create_prometheus_runtime
from waystation.runtime.temporal.task_client import TemporalTaskClient
from waystation.tasks.task import TaskPhase, make_task_id
from waystation.testing.doubles import PlainRedactor, RecordingMeter
from waystation.workers.activity_deps import ActivityDeps
from waystation.workers.health import Gauge, run_gauge_sampler

_SAMPLE = re.compile(r"^(?P<name>waystation_\w+)(?:\{(?P<labels>[^}]*)\})? (?P<value>\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
_METRIC = re.compile(r"\b(?:waystation|temporal)_\w+")
PRICED = "claude-sonnet-5-5"
GRAFANA = Path(__file__).parents[2] / "docs" / "grafana"
DASHBOARD, ALERTS = GRAFANA / "waystation.json", GRAFANA / "alerts.yml"
COMPACTED = CompactionOutcome(
    compaction_id="4711",
    status=CompactionStatus.COMPRESSED,
    strategy="window",
    tokens_before=9_000,
    tokens_after=2_000,
    covered=7,
    passages=3,
    totals=RunUsage(),
)


class Sample(NamedTuple):
    """One line of the endpoint."""

    name: str
    labels: dict[str, str]
    value: int


class Scraped:
    """An endpoint of its own, and what it shows."""

    def __init__(self) -> None:
        self.port = find_free_port()
        self.runtime = create_prometheus_runtime("127.0.0.1", self.port)
        self.meter = TemporalMeter(self.runtime.metric_meter)
        self.samples: list[Sample] = []

    async def scrape(self) -> str:
        """Look once; returns the whole text."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            text = await answer.text()
        self.samples = [
            Sample(found["name"], dict(_LABEL.findall(found["labels"] or "")), int(found["value"]))
            for found in _SAMPLE.finditer(text)
        ]
        return text

    def total(self, name: str, **labels: str) -> int:
        """The sum of all samples of that name which carry these labels."""
        return sum(one.value for one in self.samples if one.name == name and labels.items() <= one.labels.items())


TASK_ID = make_task_id(make_task_request())


async def charged(parts: ActivityDeps) -> tuple[RunUsage, list[RunUsage]]:
    """What the store says that planning and the agents have cost."""
    totals = [
        await parts.store.get_run_usage(f"{TASK_ID}/{step}")
        for step in (PLANNING_ID, *(step.id for step in SCRIPTED_PLAN.steps))
    ]
    return totals[0], totals[1:]


@asynccontextmanager
async def at_work(
    folder: Path, crew: ScriptedTaskModel, scraped: Scraped
) -> AsyncGenerator[tuple[TaskSubmitter, ActivityDeps]]:
    async with (
        start_dev_server() as server,
        open_activity_deps(folder, PlainRedactor({}), crew, scraped.meter) as parts,
        run_all_workers(server, parts),
    ):
        yield TaskSubmitter(server, parts.store), parts


async def test_what_is_scraped_after_a_task_is_what_the_store_has_charged(tmp_path: Path) -> None:
    scraped, refused = Scraped(), asyncio.Event()

    async def busy_once(call: ModelCall) -> None:
        if call == ModelCall("tides", 2) and not refused.is_set():
            refused.set()
            raise ModelUnavailable("busy", retry_after=0.01, possibly_billed=False)

    crew = ScriptedTaskModel(before=busy_once)
    priced = make_task_config().replace(default=LARGE_WINDOW_CONFIG.replace(model=PRICED, prices=PRICES))
    async with at_work(tmp_path, crew, scraped) as (counter, parts):
        await counter.submit(under=priced)
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
        planning, agents = await charged(parts)
    text = await scraped.scrape()
    for kind in ("input", "cache_write", "cache_read", "output"):
        spent = sum(getattr(one.usage, kind) for one in agents)
        assert scraped.total("waystation_tokens_total", kind=kind, model=PRICED, call="turn") == spent
        assert scraped.total("waystation_tokens_total", kind=kind, call="plan") == getattr(planning.usage, kind)
    cost = sum(one.cost_micro_usd or 0 for one in agents)
    assert scraped.total("waystation_cost_microdollars_total") == cost > 0
    assert planning.cost_micro_usd is None
    assert scraped.total("waystation_unpriced_calls_total", model="crew", call="plan") == 1
    assert scraped.total("waystation_model_calls_total", outcome="answered") == len(crew.calls) - 1
    assert scraped.total("waystation_model_calls_total", outcome="unavailable", call="turn", model=PRICED) == 1
    assert TASK_ID.removeprefix("task-") not in text


def fail_late(tried_for: timedelta, meter: MetricMeter) -> None:
    """Fail an attempt at an activity that was first tried that long before."""

    def work() -> None:
        with translating_errors():
            raise ModelUnavailable("busy", possibly_billed=False)

    environment = ActivityEnvironment()
    environment.metric_meter = meter
    began = environment.info.current_attempt_scheduled_time - tried_for
    environment.info = dataclasses.replace(environment.info, scheduled_time=began)
    with suppress(ApplicationError):
        environment.run(work)


@workflow.defn(name="Changed", sandboxed=False)
class ChangedWorkflow:
    """Waits for a timer at first, and for an activity when it is replayed; or fails its workflow tasks."""

    @workflow.run
    async def run(self, kind: str) -> None:
        if kind == "broken":
            raise ValueError("a defect")
        if workflow.unsafe.is_replaying():
            await workflow.execute_activity("Other", start_to_close_timeout=timedelta(seconds=5))
        await workflow.sleep(60)

    @workflow.signal
    def wake(self) -> None:
        """Do nothing."""


async def break_workflows(client: Client, scraped: "Scraped") -> None:
    """Run workflows whose code fails, and whose code has changed, until both were counted."""
    worker = Worker(client, task_queue="broken", workflows=[ChangedWorkflow], max_cached_workflows=0)
    async with worker:
        await client.start_workflow(ChangedWorkflow.run, "broken", id="broken", task_queue="broken")
        changed = await client.start_workflow(ChangedWorkflow.run, "changed", id="changed", task_queue="broken")
        await changed.signal(ChangedWorkflow.wake)

        async def counted() -> bool:
            text = await scraped.scrape()
            return all(f'{FAILED_TASKS}{{failure_reason="{reason}"' in text for reason in REASONS)

        await wait_until(counted)
        for name in ("broken", "changed"):
            await client.get_workflow_handle(name).terminate()


class AlertRule(BaseModel):
    """A rule of the file of alerts."""

    expr: str


class AlertGroup(BaseModel):
    """A group of rules."""

    rules: list[AlertRule]


class AlertFile(BaseModel):
    """The file of alerts."""

    groups: list[AlertGroup]


FAILED_TASKS = "temporal_workflow_task_execution_failed_total"
REASONS = ("NonDeterminismError", "WorkflowError")
_REASON = re.compile(r'failure_reason!?="(\w+)"')


async def test_a_dashboard_and_alerts_ask_for_metrics_that_there_are(tmp_path: Path) -> None:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    (group,) = AlertFile.model_validate(yaml.safe_load(ALERTS.read_text(encoding="utf-8"))).groups
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked += [rule.expr for rule in group.rules]
    names = {name for expression in asked for name in _METRIC.findall(expression)}
    assert len([name for name in names if name.startswith("waystation_")]) == 17, "all of ours"
    assert len(group.rules) == 3
    assert {reason for expression in asked for reason in _REASON.findall(expression)} <= {*REASONS}

    scraped = Scraped()
    priced = make_task_config().replace(default=LARGE_WINDOW_CONFIG.replace(model=PRICED, prices=PRICES))
    async with (
        start_dev_server() as server,
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel(), scraped.meter) as parts,
    ):
        address = server.service_client.config.target_host
        client = await Client.connect(address, data_converter=server.data_converter, runtime=scraped.runtime)
        async with run_all_workers(client, parts):
            counter = TaskSubmitter(client, parts.store)
            await counter.submit(under=priced)
            await counter.get_task_handle().result()
        scraped.meter.record_compaction(COMPACTED)
        scraped.meter.record_redactions(TextDestination.SUMMARY, 5)
        scraped.meter.set_pending_passages(12)
        scraped.meter.set_paused_tasks(2)
        scraped.meter.record_model_wait(PRICED, 1.5)
        scraped.meter.set_rate_limit(PRICED, "requests", 50.0, 7.6)
        scraped.meter.set_waiting_calls(3)
        scraped.meter.record_sampling_failure("paused_tasks")
        fail_late(LATE, scraped.runtime.metric_meter)
        await break_workflows(client, scraped)
        shown = {line.partition("{")[0].partition(" ")[0] for line in (await scraped.scrape()).splitlines()}
    assert names - shown == set()
    assert {"${datasource}"} == {panel["datasource"]["uid"] for panel in board["panels"] if "datasource" in panel}


async def test_only_failures_after_an_hour_are_late() -> None:
    scraped = Scraped()
    fail_late(LATE - timedelta(seconds=1), scraped.runtime.metric_meter)
    await scraped.scrape()
    assert scraped.total("waystation_late_failures_total") == 0
    fail_late(LATE, scraped.runtime.metric_meter)
    await scraped.scrape()
    assert scraped.total("waystation_late_failures_total") == 1


async def test_a_paused_task_is_counted_while_it_waits(tmp_path: Path) -> None:
    async with at_work(tmp_path, ScriptedTaskModel(), Scraped()) as (counter, _):
        address = counter.client.service_client.config.target_host
        tasks = TemporalTaskClient(counter.client, TemporalTarget(ClientConfigProfile(address=address), None))
        assert await tasks.count_waiting_tasks() == 0
        await counter.submit(under=make_tight_budget_config())

        async def counted() -> bool:
            return await tasks.count_waiting_tasks() == 1

        await wait_until(counted)
        await counter.get_task_handle().terminate()


async def test_what_else_is_counted_carries_no_ids() -> None:
    scraped = Scraped()
    scraped.meter.record_compaction(COMPACTED)
    scraped.meter.record_compaction(COMPACTED.replace(status=CompactionStatus.CANNOT_FIT))
    scraped.meter.record_redactions(TextDestination.SUMMARY, 5)
    scraped.meter.set_pending_passages(12)
    scraped.meter.set_paused_tasks(2)
    scraped.meter.set_paused_tasks(1)
    scraped.meter.record_model_wait(PRICED, 1.5)
    scraped.meter.record_model_wait(PRICED, 0.25)
    scraped.meter.set_rate_limit(PRICED, "requests", 50.0, 7.6)
    scraped.meter.set_rate_limit(PRICED, "output_tokens", 8_000.0, -120.0)
    scraped.meter.set_waiting_calls(3)
    scraped.meter.record_sampling_failure("paused_tasks")
    await scraped.scrape()
    without_service = [(one.name, {**one.labels, "service_name": ""}, one.value) for one in scraped.samples]
    shown = {(name, *(value for value in labels.values() if value)): count for name, labels, count in without_service}
    assert shown == {
        ("waystation_compactions_total", "COMPRESSED"): 1,
        ("waystation_compactions_total", "CANNOT_FIT"): 1,
        ("waystation_compaction_saved_tokens_total",): 7_000,
        ("waystation_redactions_total", "summaries"): 5,
        ("waystation_outbox_passages",): 12,
        ("waystation_paused_tasks",): 1,
        ("waystation_waited_calls_total", PRICED): 2,
        ("waystation_waited_milliseconds_total", PRICED): 1_750,
        ("waystation_rate_limit", "requests", PRICED): 50,
        ("waystation_rate_limit_remaining", "requests", PRICED): 8,
        ("waystation_rate_limit", "output_tokens", PRICED): 8_000,
        ("waystation_rate_limit_remaining", "output_tokens", PRICED): 0,
        ("waystation_waiting_calls",): 3,
        ("waystation_unread_samples_total", "paused_tasks"): 1,
    }


async def test_a_gauge_that_cannot_be_read_is_counted_and_read_again() -> None:
    meter, answers = RecordingMeter(), iter([1, None, 3])
    read_all = asyncio.Event()

    async def read() -> int:
        answer = next(answers, 0)
        if answer is None:
            raise StoreError("gone")
        if answer == 3:
            read_all.set()
        return answer

    gauge = Gauge("outbox_passages", read, meter.set_pending_passages)
    async with run_gauge_sampler((gauge,), meter, timedelta(milliseconds=1)):
        await read_all.wait()
    assert meter.missed == {"outbox_passages": 1}
    assert meter.gauges["passages_waiting"] in {3, 0}


def test_a_metrics_port_that_is_taken_is_told() -> None:
    scraped = Scraped()
    with pytest.raises(BadInput, match=rf"metrics cannot be served at 127\.0\.0\.1:{scraped.port}: .*in use"):
        create_prometheus_runtime("127.0.0.1", scraped.port)
