"""Questions come back on a real server: five Mondays with a changed document in the third week; and what goes wrong."""

import asyncio
import shutil
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr
from temporalio.client import Client as TemporalClient
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy, WorkflowExecutionStatus

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, SITE
from tests.support.schedule_platform import BUDGET, MONDAYS, QUESTION, SchedulePlatform, run_schedule_platform
from tests.support.task_model import ModelCall, ScriptedTaskModel
from tests.support.temporal_platform import (
    KEY,
    TENANT,
    StrictWorkerPlugin,
    create_strict_runner,
    load_priority,
    start_dev_server,
    wait_until,
)
from tests.support.webhook_server import WebhookServer, parse_event_payload, run_webhook_server
from waystation.agents.action_approvals import TopUpPolicy
from waystation.cli.main import run
from waystation.client.erasure import TaskSelection, forget_tasks_and_schedules, run_erasure, select_task_ids
from waystation.client.person_search import open_person_search
from waystation.client.schedules import ScheduleDescription
from waystation.config.settings import Settings
from waystation.documents.stored_documents import load_source_documents
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput, ModelRejected, TextNotFoundError
from waystation.kernel.temporal_names import SCHEDULED_TASK_PRIORITY, TASK_ENDED
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.runtime.store_setup import build_client_data_converter
from waystation.runtime.temporal.erasure_client import is_workflow_running
from waystation.tasks.schedules import ScheduleTiming
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import TaskFilter


@dataclass
class Held:
    """Every call of the crew waits."""

    goes_on: asyncio.Event = field(default_factory=asyncio.Event)
    refuses: bool = False

    async def __call__(self, call: ModelCall) -> None:
        await self.goes_on.wait()
        if self.refuses:
            raise ModelRejected("the key is not known")


async def test_the_page_of_schedules_shows_pauses_resumes_and_removes_them(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings) as platform:
        await platform.schedules.add(platform.make_schedule())
        await platform.wait_for_schedule("weekly")
        app = create_app(SITE, platform.client, settings.tenant, ServerDeps(ACCESS))
        headers, form = {**BEARER, "Origin": HERE}, {"mark": ACCESS.csrf_token}
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=app), base_url=HERE, headers=headers
        ) as asking:
            shown = await asking.get("/schedules")
            forged = await asking.post("/schedules/weekly/pause", data={})
            await asking.post("/schedules/weekly/pause", data=form)
            paused = (await platform.wait_for_schedule("weekly")).view
            await asking.post("/schedules/weekly/resume", data=form)
            resumed = (await platform.wait_for_schedule("weekly")).view
            unknown = await asking.post("/schedules/other/pause", data=form)
            removed = await asking.post("/schedules/weekly/remove", data=form)
    assert QUESTION in shown.text
    assert (forged.status_code, unknown.status_code, removed.status_code) == (403, 400, 303)
    assert (paused.paused, paused.note, resumed.paused) == (True, "paused by a person on the page", False)


@pytest.mark.timeout(240)
async def test_over_five_weeks_a_report_opens_with_what_changed_and_a_run_that_would_repeat_starts_no_task(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings) as platform:
        await platform.schedules.add(platform.make_schedule())
        said = [(await platform.run_week(0)).view.last, (await platform.run_week(1)).view.last]
        platform.write_documents("three")
        said += [(await platform.run_week(week)).view.last for week in (2, 3, 4)]
        reports = await platform.list_reports()
        tasks = [view.task_id for view in await platform.client.list_tasks(TaskFilter(session="S"))][::-1]
    assert said == [
        f"done, {tasks[0]}",
        f"unchanged, {tasks[0]}, the same question, configuration and documents",
        f"done, {tasks[1]}",
        *[f"unchanged, {tasks[1]}, the same question, configuration and documents"] * 2,
    ]
    first, third = reports
    assert "What changed" not in first
    head = third[: third.index("In the sections below")]
    assert f"> **What changed since last time** (`{tasks[0]}`): 0 new claims, 0 gone, 1 changed" in head
    was, now = "The bar of Nordvik is two fathoms deep", "The bar of Nordvik is three fathoms deep"
    assert was in head
    assert head.index(was) < head.index("**is now**") < head.index(now)
    assert head.count("[bar.md:3") == 2


@pytest.mark.timeout(240)
async def test_without_paths_runs_use_the_documents_of_the_newest_task_and_forgetting_the_session_removes_schedules(
    server: TemporalClient, settings: Settings
) -> None:
    selection = TaskSelection(session="S")
    async with run_schedule_platform(server, settings) as platform:
        added = await platform.schedules.add(platform.make_schedule())
        await platform.run_week(0)
        shutil.rmtree(platform.docs)
        await platform.schedules.add(platform.make_schedule().replace(name="stored", paths=()))
        said = [(await platform.run_week(week, "stored")).view.last for week in (1, 2)]
        second, first = [view.task_id for view in await platform.client.list_tasks(TaskFilter(session="S"))]
        reader = added.view.order.session_ref.scope.get_recall_scope("session")
        used = [await load_source_documents(platform.store, task, reader) for task in (first, second)]
        await platform.list_schedules("weekly")
        ids = await select_task_ids(platform.client, settings, selection)
        gone = await forget_tasks_and_schedules(platform.client, settings, selection, ids, everything=True)
        left = await platform.schedules.list()
        with pytest.raises(TextNotFoundError):
            await platform.store.get_text(added.view.order.definition, added.view.order.session_ref.scope)
    assert said == [f"done, {second}", f"unchanged, {second}, the same question, configuration and documents"]
    assert used[0]
    assert used[1] == used[0]
    assert (gone.schedules, gone.removed.tasks, left) == (2, 2, ())


async def told_by_server(platform: SchedulePlatform, name: str) -> bytes:
    """All that the server has of a schedule and of its runs, payloads as they lie there."""
    schedule_id = (await platform.wait_for_schedule(name)).view.schedule_id
    described = await platform.server.get_schedule_handle(schedule_id).describe()
    parts = [described.raw_description.SerializeToString()]
    async for began in platform.server.list_workflows('WorkflowType = "ScheduledRun"'):
        parts += [
            event.SerializeToString()
            for event in (await platform.server.get_workflow_handle(began.id).fetch_history()).events
        ]
    return b"\n".join(parts)


@pytest.mark.timeout(240)
async def test_a_schedule_that_fails_three_times_pauses_itself_and_the_server_has_no_word_of_what_it_asks(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings, ScriptedTaskModel()) as platform:
        await platform.schedules.add(platform.make_schedule())
        await platform.client.set_session_limit("S", Limit(tokens=10_000))
        refused = await platform.run_week(0)
        platform.docs.rename(platform.docs.with_name("moved"))
        gone = await platform.run_week(1)
        paused = await platform.run_week(2)
        told = await told_by_server(platform, "weekly")
        await platform.schedules.resume("weekly", "the folder is back")
        resumed = await platform.wait_for_schedule("weekly")
    assert refused.view.last.startswith("failed: the session refused the task")
    assert refused.view.last.endswith("(failure 1 in a row)")
    assert gone.view.last.startswith("failed: 1 of the paths of its documents no longer exist")
    assert [one.view.paused for one in (refused, gone, paused, resumed)] == [False, False, True, False]
    assert paused.view.note == (
        "paused after 3 failures in a row: look for the cause in the last run, then resume the schedule"
    )
    assert paused.view.last.endswith("(failure 3 in a row)")
    assert b"ScheduledRunFailed" in told
    assert [words for words in (QUESTION, "Nordvik", str(platform.docs), "docs") if words.encode() in told] == []


@pytest.mark.timeout(240)
async def test_a_success_ends_a_row_of_failures(server: TemporalClient, settings: Settings) -> None:
    async with run_schedule_platform(server, settings, runner=create_strict_runner()) as platform:
        await platform.schedules.add(platform.make_schedule().replace(failures=2))
        moved = platform.docs.rename(platform.docs.with_name("moved"))
        first = await platform.run_week(0)
        moved.rename(platform.docs)
        second = await platform.run_week(1)
        platform.docs.rename(moved)
        third = await platform.run_week(2)
        priority = await load_priority(server, second.view.last.removeprefix("done, "))
    assert priority.priority_key == SCHEDULED_TASK_PRIORITY
    assert [one.view.last.rpartition("(")[2] for one in (first, third)] == ["failure 1 in a row)"] * 2
    assert second.view.last.startswith("done, task-")
    assert not third.view.paused


@pytest.mark.timeout(240)
async def test_a_run_that_would_pass_the_ceiling_of_the_month_does_not_start_and_says_so(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings) as platform:
        with pytest.raises(BadInput, match="no run would ever start"):
            await platform.schedules.add(platform.make_schedule().replace(monthly=Limit(tokens=10_000)))
        await platform.schedules.add(platform.make_schedule().replace(monthly=BUDGET))
        first = await platform.run_week(0)
        platform.write_documents("three")
        second = await platform.run_week(1)
        tasks = await platform.client.list_tasks(TaskFilter(session="S"))
    spent = tasks[0].budget.spent.tokens
    assert first.view.last.startswith("done, task-")
    assert second.view.last == (
        f"over the monthly budget, this month's runs have spent or reserved {spent:,} tokens, and another run with a "
        "budget of 300,000 tokens would exceed the monthly budget of 300,000 tokens"
    )
    assert not second.view.paused
    assert len(tasks) == 1


@pytest.mark.timeout(240)
async def test_runs_that_begin_at_once_keep_to_the_ceiling_of_the_month_together(
    server: TemporalClient, settings: Settings
) -> None:
    crew = Held()
    async with run_schedule_platform(server, settings, ScriptedTaskModel(before=crew)) as platform:
        monthly, timing = Limit(tokens=2 * (BUDGET.tokens or 0)), ScheduleTiming(cron="0 7 * * 1", overlap="allow-all")
        added = await platform.schedules.add(platform.make_schedule().replace(monthly=monthly, timing=timing))
        handle = platform.server.get_schedule_handle(added.view.schedule_id)
        every_week = ScheduleBackfill(MONDAYS[0] - timedelta(days=1), MONDAYS[4] + timedelta(days=1))
        await handle.backfill(replace(every_week, overlap=ScheduleOverlapPolicy.ALLOW_ALL))

        async def turned_away() -> bool:
            found = [one async for one in platform.server.list_workflows('WorkflowType = "ScheduledRun"')]
            return sum(one.status == WorkflowExecutionStatus.COMPLETED for one in found) == 3

        await wait_until(turned_away)
        tasks = await platform.client.list_tasks(TaskFilter(session="S"))
        crew.goes_on.set()
        await platform.wait_for_runs(5)
    assert len(tasks) == 2


@pytest.mark.timeout(240)
async def test_what_was_missed_starts_one_task_and_a_removed_schedule_leaves_a_run_that_is_under_way(
    server: TemporalClient, settings: Settings
) -> None:
    crew = Held()
    async with run_schedule_platform(server, settings, ScriptedTaskModel(before=crew)) as platform:
        added = await platform.schedules.add(platform.make_schedule())
        handle = platform.server.get_schedule_handle(added.view.schedule_id)
        await handle.backfill(ScheduleBackfill(MONDAYS[0] - timedelta(days=1), MONDAYS[4] + timedelta(days=1)))

        async def skipped() -> bool:
            seen = (await platform.wait_for_schedule("weekly")).view
            return seen.running and seen.skipped == 4

        await wait_until(skipped)
        assert not await platform.schedules.trigger("weekly")
        policy = (await handle.describe()).schedule.policy
        wish = (await platform.wait_for_schedule("weekly")).view.order
        await platform.schedules.remove("weekly")
        with pytest.raises(TextNotFoundError):
            await platform.store.get_text(wish.definition, wish.session_ref.scope)
        with pytest.raises(BadInput, match="there is no schedule with this name"):
            await platform.schedules.remove("weekly")
        with pytest.raises(BadInput, match="there is no schedule with this name"):
            await platform.schedules.trigger("weekly")
        crew.goes_on.set()
        (held,) = [one async for one in server.list_workflows('WorkflowType = "ScheduledRun"')]
        outcome = await server.get_workflow_handle(held.id).result()
        (task,) = await platform.client.list_tasks(TaskFilter(session="S"))
        again = await platform.schedules.add(platform.make_schedule())
    assert (policy.overlap, policy.catchup_window) == (ScheduleOverlapPolicy.SKIP, timedelta(days=1))
    assert outcome == {"outcome": "done", "task_id": task.task_id, "reason": ""}
    assert again.view.order.definition == wish.definition
    assert again.definition is not None


async def test_each_run_has_the_servers_and_the_skills_that_were_named_with_the_schedule(
    server: TemporalClient, cli_settings: Settings, tmp_path: Path
) -> None:
    skill = tmp_path / "skills" / "tides"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: tides\ndescription: Of depths.\n---\nSubtract two metres.\n")
    async with run_schedule_platform(server, cli_settings, ScriptedTaskModel()) as platform:
        platform.write_documents()
        command = ["schedule", "add", QUESTION, "--docs", str(platform.docs), "--cron", "0 7 * * 1", "--name", "weekly"]
        named = ["--servers", "wiki,default", "--skills", str(skill.parent), "--session", "S", "--budget", "300k"]
        assert await asyncio.to_thread(run, [*command, *named]) == 0
        await platform.run_week(0)
        (task,) = await platform.client.list_tasks(TaskFilter(session="S"))
        seen = await platform.client.get_task(task.task_id)
    assert seen.tool_servers == ("wiki", "default")
    assert [one.name for one in seen.procedures] == ["tides"]


@pytest.mark.timeout(240)
async def test_a_schedule_in_mode_soft_asks_no_one_and_decisions_in_advance_are_kept_for_each_run(
    server: TemporalClient, cli_settings: Settings
) -> None:
    async with run_schedule_platform(server, cli_settings) as platform:
        command = ["schedule", "add", QUESTION, "--docs", str(platform.docs), "--cron", "0 7 * * 1", "--session", "S"]
        advance = ["--top-up", "50kx2", "--answer-by", "12h", "--then", "wait", "--ceiling", "1M", "--budget", "300k"]
        soft = ["--mode", "soft", "--budget", "12k"]
        assert await asyncio.to_thread(run, [*command, "--name", "advance", *advance]) == 0
        assert await asyncio.to_thread(run, [*command, "--name", "soft", *soft]) == 0
        decided = (await platform.wait_for_schedule("advance")).definition
        ended = await platform.run_week(0, "soft")
        (task,) = await platform.client.list_tasks(TaskFilter(session="S"))
    assert ended.view.last == f"partial, {task.task_id}"
    assert decided is not None
    unattended = decided.request.unattended
    assert (unattended.answer_within, unattended.at_deadline) == (timedelta(hours=12), "wait")
    assert unattended.top_up == TopUpPolicy(amount=Amount(tokens=50_000), times=2)
    assert decided.request.ceiling == Limit(tokens=1_000_000)


async def test_the_question_of_a_person_who_was_erased_is_asked_no_more_and_the_next_run_says_what_to_do(
    server: TemporalClient, settings: Settings
) -> None:
    person = "Ada Lovelace"
    async with run_schedule_platform(server, settings, ScriptedTaskModel()) as platform:
        wish = platform.make_schedule()
        asked = wish.request.replace(question=f"What does {person} say of the bar?")
        added = await platform.schedules.add(wish.replace(request=asked))
        async with open_person_search(settings, person, "PERSON") as search:
            await run_erasure(search, await search.find_locations(), histories=True, tell=lambda _: None)
        kept = await platform.wait_for_schedule("weekly")
        ran = await platform.run_week(0)
    assert added.definition is not None
    assert kept.definition is None
    assert (
        "the question of this schedule is no longer in the store: remove the schedule and add it again" in ran.view.last
    )


async def test_what_cannot_be_scheduled_is_refused_and_nothing_of_it_is_kept(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings, ScriptedTaskModel()) as platform:
        for timing in (
            ScheduleTiming(cron="at seven"),
            ScheduleTiming(cron="0 7 * * 9"),
            ScheduleTiming(cron="0 7 * * 1", zone="Europe/Nowhere"),
        ):
            with pytest.raises(BadInput, match=r"^the times .* cannot be used"):
                await platform.schedules.add(platform.make_schedule().replace(timing=timing))
        with pytest.raises(BadInput, match=r"^no date ever matches '0 7 31 2 \*'\."):
            await platform.schedules.add(platform.make_schedule().replace(timing=ScheduleTiming(cron="0 7 31 2 *")))
        assert await platform.schedules.list() == ()
        wishes = [platform.make_schedule().replace(monthly=Limit(tokens=1_000_000 * times)) for times in (1, 2)]
        added = await asyncio.gather(*map(platform.schedules.add, wishes), return_exceptions=True)
        (kept,) = await platform.list_schedules()
    won = [one for one in added if isinstance(one, ScheduleDescription)]
    assert ["a schedule with this name" in str(one) for one in added if isinstance(one, BadInput)] == [True]
    assert [kept.definition] == [one.definition for one in won]
    assert not kept.view.paused


async def signal_run(server: TemporalClient) -> None:
    """Wake the run that waits for its task, as the task does when it ends."""
    runs = server.list_workflows('WorkflowType = "ScheduledRun" AND ExecutionStatus = "Running"')
    async for one in runs:
        await server.get_workflow_handle(one.id).signal(TASK_ENDED)


async def count_looks(server: TemporalClient) -> int:
    """Return how often runs have looked at their tasks."""
    looks = 0
    async for one in server.list_workflows('WorkflowType = "ScheduledRun"'):
        history = await server.get_workflow_handle(one.id, run_id=one.run_id).fetch_history()
        looks += sum(
            event.activity_task_scheduled_event_attributes.activity_type.name == "LookAtScheduledTask"
            for event in history.events
        )
    return looks


async def test_a_run_is_notified_of_its_tasks_end_and_does_not_ask_meanwhile(
    server: TemporalClient, settings: Settings
) -> None:
    async with run_schedule_platform(server, settings, ScriptedTaskModel()) as platform:
        await platform.schedules.add(platform.make_schedule())
        done = await platform.run_week(0)
        looks = await count_looks(server)
    assert done.view.last.startswith("done, task-")
    assert looks <= 2, "when the task was admitted, and when it ended"


async def wait_for_notifications(webhook: WebhookServer, *expected: str) -> None:
    """Wait until the webhook has accepted as many, then compare their kinds."""

    async def are_sent() -> bool:
        return len(webhook.accepted_bodies) >= len(expected)

    await wait_until(are_sent)
    assert sorted(str(parse_event_payload(body)["event"]) for body in webhook.accepted_bodies) == sorted(expected)


@pytest.mark.timeout(240)
async def test_people_are_notified_of_a_run_that_starts_no_task_though_it_should_and_of_a_pause(
    server: TemporalClient, settings: Settings
) -> None:
    async with (
        run_webhook_server() as webhook,
        run_schedule_platform(server, settings.replace(webhook=SecretStr(webhook.url))) as platform,
    ):
        await platform.schedules.add(platform.make_schedule().replace(failures=2, monthly=BUDGET))
        await platform.run_week(0)
        platform.write_documents("three")
        await platform.run_week(1)
        platform.docs.rename(platform.docs.with_name("moved"))
        await platform.run_week(2)
        paused = await platform.run_week(3)
        await wait_for_notifications(
            webhook, "task_finished", "schedule_over_budget", "schedule_run_failed", "schedule_paused"
        )
    sent = [parse_event_payload(body) for body in webhook.accepted_bodies]
    (told,) = [one for one in sent if one["event"] == "schedule_paused"]
    assert (told["schedule"], f"failed: {told['reason']}") == ("weekly", paused.view.last)
    assert str(told["delivery_id"]).endswith("-weekly-2026-10-26T07:00:00Z-schedule_paused")


async def test_a_task_that_is_terminated_or_fails_is_a_failure_of_its_schedule_and_is_reported_once(
    server: TemporalClient, settings: Settings
) -> None:
    crew = Held()
    async with (
        run_webhook_server() as webhook,
        run_schedule_platform(
            server, settings.replace(webhook=SecretStr(webhook.url)), ScriptedTaskModel(before=crew)
        ) as platform,
    ):
        await platform.schedules.add(platform.make_schedule().replace(failures=3))
        assert await platform.schedules.trigger("weekly")

        async def at_work() -> bool:
            return len(await platform.client.list_tasks(TaskFilter(session="S"))) == 1

        await wait_until(at_work)
        ended = (await platform.client.list_tasks(TaskFilter(session="S")))[0].task_id
        await wait_until(partial(is_workflow_running, server, ended))
        await server.get_workflow_handle(ended).terminate("by a person")
        # It would look by itself after a quarter of an hour: a terminated task reports nothing.
        await signal_run(server)
        first = await platform.wait_for_runs(1)
        crew.refuses = True
        crew.goes_on.set()
        second = await platform.run_week(0)
        failed = (await platform.client.list_tasks(TaskFilter(session="S")))[0]
        await wait_for_notifications(webhook, "schedule_run_failed", "task_failed")
    assert first.view.last == f"failed: {ended} was ended in Temporal, without a report (failure 1 in a row)"
    assert failed.phase is TaskPhase.FAILED
    assert second.view.last == f"failed: {failed.task_id} failed (failure 2 in a row)"
    assert not second.view.paused


@pytest.mark.timeout(240)
async def test_a_run_whose_history_grows_long_goes_on_waiting_for_the_same_task_and_knows_the_failures_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    crew = Held()
    async with start_dev_server("limit.historyCount.suggestContinueAsNew=20") as server:
        monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
        async with run_schedule_platform(
            server, Settings(home=tmp_path, tenant=TENANT), ScriptedTaskModel(before=crew)
        ) as platform:
            await platform.schedules.add(platform.make_schedule().replace(failures=2))
            moved = platform.docs.rename(platform.docs.with_name("moved"))
            first = await platform.run_week(0)
            moved.rename(platform.docs)
            assert await platform.schedules.trigger("weekly")

            async def went_on() -> bool:
                query = 'WorkflowType = "ScheduledRun" AND ExecutionStatus = "ContinuedAsNew"'
                return bool([one async for one in server.list_workflows(query)])

            await wait_until(went_on)
            crew.refuses = True
            crew.goes_on.set()

            async def paused() -> bool:
                return (await platform.wait_for_schedule("weekly")).view.paused

            await wait_until(paused)
            second, tasks = (
                await platform.wait_for_schedule("weekly"),
                await platform.client.list_tasks(TaskFilter(session="S")),
            )
    assert first.view.last.endswith("(failure 1 in a row)")
    assert "after 2 failures in a row" in second.view.note
    assert len(tasks) == 1


@pytest.mark.timeout(120)
async def test_where_payloads_are_encrypted_a_schedule_runs_and_is_listed_by_who_has_the_key(
    server: TemporalClient, settings: Settings
) -> None:
    key = SecretStr(KEY.hex())
    with_key = Settings(home=settings.home, tenant=TENANT, key=key, encrypt_at_rest=False)
    plugged = await TemporalClient.connect(
        server.service_client.config.target_host,
        data_converter=build_client_data_converter(with_key),
        plugins=[StrictWorkerPlugin(cached=False)],
    )
    async with run_schedule_platform(plugged, with_key, ScriptedTaskModel()) as platform:
        await platform.schedules.add(platform.make_schedule())
        moved = platform.docs.rename(platform.docs.with_name("moved"))
        failed = [await platform.run_week(0), await platform.run_week(1)]
        moved.rename(platform.docs)
        ran = await platform.run_week(2)
        raw = (await server.get_schedule_handle(ran.view.schedule_id).describe()).raw_description
    assert [one.view.last.rpartition("(")[2] for one in failed] == ["failure 1 in a row)", "failure 2 in a row)"]
    assert ran.view.last.startswith("done, task-")
    assert ran.definition is not None
    assert ran.view.order.definition.encode() not in raw.SerializeToString()
