"""Spending, sessions and audits of compactions over HTTP: whose they are, and what foreign words do there."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import BEARER, NO_SERVER, SCRIPT, open_site_client, store_running_task
from tests.support.finished_tasks import make_task_row
from tests.support.store_values import make_charge, make_summary
from waystation.config.settings import Settings
from waystation.context.transcript import build_user_message
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskRequest

ROUTES = ("/v1/spending", "/v1/sessions", "/spending?by=task", "/sessions")
SINCE: Mapping[str, str] = {"since": "2026-11-01", "until": "2026-11-30"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A task that has spent something, in a session whose name and role are markup."""
    settings = Settings(home=Path(tmp_path_factory.mktemp("home")) / "home", offline=True)
    asyncio.run(keep_spending(settings))
    asyncio.run(store_running_task(settings))
    return settings


async def keep_spending(settings: Settings) -> None:
    settings.home.mkdir(exist_ok=True)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question="Which?", session=SCRIPT, request_id="s1"), settings, await store.get_store_id()
    )
    await store.register_task(row, ())
    await store.save_task_title(row.ref.task_id, SCRIPT)
    run = RunRef(**row.ref.model_dump(), step_id="writing", role="writing")
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    await store.commit_charge(fence, make_charge("turn-1").replace(model=SCRIPT))
    await store.aclose()


async def test_what_was_spent_is_answered_and_shown_to_its_tenant_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    async with open_site_client(settings) as asking:
        spent, sessions, page, listed = [await asking.get(one, headers=BEARER, params=SINCE) for one in ROUTES]
    async with open_site_client(settings, tenant="other") as asking:
        nothing, none, empty, no_session = [await asking.get(one, headers=BEARER, params=SINCE) for one in ROUTES]
    assert (spent.json()["total"]["calls"], nothing.json()["total"]["calls"]) == (2, 0)
    assert (len(sessions.json()), none.json()) == (2, [])
    assert ("Nothing was spent" in page.text, "Nothing was spent" in empty.text) == (False, True)
    assert ("No session yet" in listed.text, "No session yet" in no_session.text) == (False, True)


async def test_names_of_sessions_tasks_and_models_are_text_there(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    async with open_site_client(settings) as asking:
        answers = [
            await asking.get(path, headers=BEARER, params={**SINCE, "session": SCRIPT, **more})
            for path, more in (
                ("/spending", {}),
                ("/spending", {"by": "task"}),
                ("/spending", {"by": "session"}),
                ("/sessions", {}),
            )
        ]
    for answer in answers:
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        assert "&lt;script&gt;alert" in answer.text


async def test_spending_is_added_up_by_session_on_the_page_and_over_http(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    asked = {**SINCE, "by": "session"}
    async with open_site_client(settings) as asking:
        spent = (await asking.get("/v1/spending", headers=BEARER, params=asked)).json()
        by_model = (await asking.get("/v1/spending", headers=BEARER, params=SINCE)).json()
        page = await asking.get("/spending", headers=BEARER, params=asked)
        none = await asking.get("/v1/spending", headers=BEARER, params={**SINCE, "by": "weather"})
    assert {one["name"]: one["calls"] for one in spent["groups"]} == {SCRIPT: 1, "default": 1}
    assert {line["session"] for line in spent["lines"]} == {SCRIPT, "default"}
    assert sum(one["calls"] for one in by_model["groups"]) == 2
    assert SCRIPT in {one["name"] for one in by_model["groups"]}
    assert '<a href="/session?name=default">default</a>' in page.text
    assert none.status_code == 422


async def test_a_form_that_was_left_empty_asks_for_the_usual_days_and_sessions_come_in_pages(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    monkeypatch.setattr("waystation.plugins.web.pages.MAX_PAGE_SIZE", 1)
    async with open_site_client(settings) as asking:
        empty = await asking.get("/spending?since=&until=&session=&by=agent", headers=BEARER)
        wrong = await asking.get("/spending?since=2026-11-02&until=2026-11-01", headers=BEARER)
        first = await asking.get("/sessions", headers=BEARER)
        rest = await asking.get("/sessions?first=1", headers=BEARER)
        second = await asking.get("/v1/sessions?first=1&count=1", headers=BEARER)
    assert (empty.status_code, wrong.status_code) == (200, 400)
    assert ('href="/sessions?first=1"' in first.text, "Older sessions" in rest.text) == (True, False)
    assert [one["session"] for one in second.json()] == [SCRIPT]


async def test_what_a_compaction_kept_and_lost_is_a_page_of_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    settings = Settings(home=tmp_path / "home", offline=True)
    task = await store_running_task(settings)
    store = await SqlStore.open(settings.database_url, utc_now)
    fence = await store.acquire_fence(f"{task}/research")
    asked = build_user_message("question-1", f"Read {SCRIPT} in data/harbour.csv, and data/report.csv after it.")
    await store.commit_message(fence, 1, asked)
    kept = make_summary().replace(summary=build_user_message("s", "data/report.csv was read"), after=None)
    await store.commit_compaction(fence, 2, kept, [], None)
    await store.aclose()
    async with open_site_client(settings) as asking:
        agent = await asking.get(f"/tasks/{task}/agents/research", headers=BEARER)
        page = await asking.get(f"/tasks/{task}/agents/research/compactions", headers=BEARER)
    assert f'href="/tasks/{task}/agents/research/compactions"' in agent.text
    lost, _, found = page.text.partition("What is kept, or found again")
    assert ("data/harbour.csv" in lost, "data/harbour.csv" in found) == (True, False)
    assert ("data/report.csv" in lost, "data/report.csv" in found) == (False, True)
    assert (f"{kept.id}, summarise, hides 2 messages" in page.text, "<script>alert" in page.text) == (True, False)
