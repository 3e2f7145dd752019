"""Schedules that are added from their page, and over the HTTP API."""

import asyncio
import html
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, NO_SERVER
from tests.end_to_end.pages_server import NOON
from tests.plugins.web.test_plan_pages import open_stub_site
from tests.support.finished_tasks import store_finished_task
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BadInput, InvalidFieldError
from waystation.plugins.web.principals import AssistantPolicy, Principal
from waystation.plugins.web.request_bodies import resolve_schedule_paths
from waystation.plugins.web.schedule_forms import SCHEDULE_DAYS, build_cron, describe_cron

KEY = Principal(name="Ada", tenant="local", role="submit", proof="API key 1")
OWNER = Principal(name="", tenant="local")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.md").write_text("# A\n\nThe bar is two fathoms deep.\n")
    return folder


def fill_form(docs: Path, **more: str) -> Mapping[str, str]:
    """Fill the form as a browser sends it."""
    given = {"question": "How deep?", "paths": f"{docs}\n", "every": "week", "at": "07:30", "zone": "Europe/Oslo"}
    return {"mark": ACCESS.csrf_token, **given, **more}


async def test_a_schedule_is_added_from_the_page_and_shown_there(settings: Settings, docs: Path) -> None:
    async with open_stub_site(settings) as (asking, client):
        sent = await asking.post(
            "/schedules", data=fill_form(docs, budget="200k", mode="soft", monthly="1M", name="weekly")
        )
        page = await asking.get(sent.headers["location"].partition("#")[0])
        (listed,) = (await asking.get("/v1/schedules")).json()
        again = await asking.post("/schedules", data=fill_form(docs, name="weekly"))
    assert (sent.status_code, sent.headers["location"]) == (303, "/schedules?added=weekly#weekly")
    assert "This schedule was added." in page.text
    assert client.stub_schedules is not None
    (timing,) = client.stub_schedules.timings.values()
    assert (timing.cron, timing.zone) == ("30 7 * * 1", "Europe/Oslo")
    assert {name: listed[name] for name in ("documents", "budget", "mode", "monthly", "paused")} == {
        "documents": [str(docs)],
        "budget": "200,000 tokens",
        "mode": "soft",
        "monthly": "1,000,000 tokens",
        "paused": False,
    }
    assert listed["session"].startswith("own-")
    assert (again.status_code, 'id="new-schedule-name-fault"' in again.text) == (400, True)


@pytest.mark.parametrize(
    ("field", "typed", "said"),
    [
        ("paths", "contracts", "not 'contracts'"),
        ("paths", "/nowhere/at-all", "/nowhere/at-all"),
        ("question", "", "This is empty"),
        ("budget", "lots", "A budget is tokens like 600k"),
        ("monthly", "100k", "The budget of a month is lower"),
        ("monthly", "$5", "in the same unit"),
        ("at", "25:00", "Give a time from 00:00 to 23:59"),
        ("cron", "each Monday", "cannot be used"),
        ("mode", "later", "approval"),
        ("name", "Über", "lower-case letters, digits and hyphens"),
    ],
)
async def test_a_refused_schedule_comes_back_filled_in_with_the_message_at_its_field(
    settings: Settings, docs: Path, field: str, typed: str, said: str
) -> None:
    async with open_stub_site(settings) as (asking, client):
        answer = await asking.post(
            "/schedules", data={**fill_form(docs, budget="200k", instructions="Kept <words>"), field: typed}
        )
    assert answer.status_code == 400
    assert f'aria-describedby="new-schedule-{field}-fault"' in answer.text
    told = html.unescape(answer.text.partition(f'id="new-schedule-{field}-fault"')[2].partition("</p>")[0])
    assert said in told
    assert "Kept &lt;words&gt;" in answer.text
    assert client.stub_schedules is None or not client.stub_schedules.kept


async def test_a_form_that_is_sent_twice_adds_one_schedule(settings: Settings, docs: Path) -> None:
    form = fill_form(docs, request_id="a1")
    async with open_stub_site(settings) as (asking, client):
        sent = await asyncio.gather(*(asking.post("/schedules", data=form) for _ in range(2)))
        other = await asking.post("/schedules", data={**form, "request_id": "a2"})
    assert [one.status_code for one in (*sent, other)] == [303, 303, 400]
    assert len({one.headers["location"] for one in sent}) == 1
    assert client.stub_schedules is not None
    assert len(client.stub_schedules.kept) == 1


async def test_a_task_of_uploaded_documents_is_repeated_without_a_path(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        session = (await client.get_task_request(task)).session
        page = await asking.get(f"/schedules?task={task}")
        form = {name: text for name, text in fill_form(Path()).items() if name != "paths"}
        form |= {"repeats": task, "session": session, "request_id": "a1"}
        wrong = await asking.post("/schedules", data={**form, "budget": "lots"})
        elsewhere = await asking.post("/schedules", data={**form, "session": "none"})
        sent = await asking.post("/schedules", data=form)
        listed = await asking.get("/schedules")
    for shown in (page, wrong):
        assert f'name="repeats" value="{task}"' in shown.text
        assert f'<a href="/tasks/{task}">this task</a>' in shown.text
        assert "now a.md." in shown.text
    assert (wrong.status_code, 'name="request_id" value="a1"' in wrong.text) == (400, True)
    assert "Give files or folders, or the session of a task that has documents." in elsewhere.text
    assert sent.status_code == 303
    assert "those of the session’s newest task" in listed.text


async def test_a_schedule_shows_its_times_in_words_its_tasks_and_who_paused_it(settings: Settings, docs: Path) -> None:
    async with open_stub_site(settings) as (asking, client):
        await asking.post("/schedules", data=fill_form(docs, name="weekly", session="default"))
        await asking.post("/schedules/weekly/pause", data={"mark": ACCESS.csrf_token, "by": "Ada"})
        (schedule,) = await (await client.get_schedule_client()).list()
        task = await store_finished_task(settings, request_id=f"{schedule.view.schedule_id}@2026-11-30T07:30:00Z")
        assert client.stub_schedules is not None
        client.stub_schedules.kept[schedule.view.schedule_id] = schedule.view.replace(
            last_run=NOON, last=f"done, {task}"
        )
        page = await asking.get("/schedules")
    assert "every week, on Monday, at 07:30 (Europe/Oslo)" in page.text
    assert '<code class="small">30 7 * * 1</code>' in page.text
    assert "paused by Ada" in page.text
    assert f'done, <a href="/tasks/{task}">its task</a>' in page.text
    assert '<div id="live"' in page.text


async def test_a_schedule_is_added_changed_and_removed_over_http(settings: Settings, docs: Path) -> None:
    body = {"question": "How deep?", "paths": [str(docs)], "cron": "0 7 * * 1", "session": "S", "name": "weekly"}
    async with open_stub_site(settings) as (asking, _):
        added = await asking.post("/v1/schedules", json=body)
        wrong = await asking.post("/v1/schedules", json={**body, "cron": "", "name": "other"})
        paused = await asking.post("/v1/schedules/weekly/pause")
        run = await asking.post("/v1/schedules/weekly/run")
        resumed = await asking.post("/v1/schedules/weekly/resume")
        removed = await asking.delete("/v1/schedules/weekly")
        unknown = await asking.delete("/v1/schedules/weekly")
        none = await asking.get("/v1/schedules")
    assert (added.status_code, added.json()["session"], added.json()["zone"]) == (201, "S", "UTC")
    assert wrong.status_code == 422
    assert [one.json()["paused"] for one in (paused, run, resumed)] == [True, True, False]
    assert (removed.status_code, unknown.status_code, none.json()) == (200, 400, [])


async def test_a_finished_task_is_asked_again_in_its_session(settings: Settings) -> None:
    task = await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        on_task = await asking.get(f"/tasks/{task}")
        page = await asking.get(f"/schedules?task={task}")
        asked = await client.get_task_request(task)
        client.away = True
        away = await asking.get("/schedules")
    assert f'<a class="button" href="/schedules?task={task}">Run again every' in on_task.text
    assert f">{html.escape(asked.question)}</textarea>" in page.text
    assert f'name="session" value="{asked.session}"' in page.text
    assert (away.status_code, "no Temporal server answers" in away.text) == (200, True)


def test_with_a_key_only_released_folders_of_the_own_tenant_may_be_named(tmp_path: Path, docs: Path) -> None:
    home = docs / "home"
    home.mkdir()
    (docs / "link").symlink_to("/etc")
    policy = AssistantPolicy(name="a", tenant="local", budget=Limit(), roots=(docs.resolve(),), home=home.resolve())
    assert resolve_schedule_paths(["/etc"], OWNER, None) == ("/etc",)
    assert resolve_schedule_paths([f"{docs}/a.md"], KEY, policy) == (str(docs.resolve() / "a.md"),)
    for path in ("/etc/passwd", f"{docs}/../secret", f"{docs}/link", f"{docs}/home", f"{docs}/missing"):
        with pytest.raises(InvalidFieldError, match=r"below .*docs.*WAYSTATION_MCP_ROOTS"):
            resolve_schedule_paths([path], KEY, policy)
    for who, folders in ((KEY, None), (KEY.replace(tenant="other"), policy)):
        with pytest.raises(InvalidFieldError, match="lets them read no folder"):
            resolve_schedule_paths([str(docs)], who, folders)


def test_days_and_a_time_become_cron_fields() -> None:
    assert build_cron("workday", "07:05") == "5 7 * * 1-5"
    assert build_cron("month", "23:59") == "59 23 1 * *"
    for every in SCHEDULE_DAYS:
        assert describe_cron(build_cron(every, "07:05")) == f"every {SCHEDULE_DAYS[every]}, at 07:05"
    for cron in ("*/5 * * * *", "0 25 * * 1", "0 7 1 1 *", "0", ""):
        assert describe_cron(cron) == ""
    for every, at in (("never", "07:00"), ("day", "7"), ("day", "24:00")):
        with pytest.raises(BadInput):
            build_cron(every, at)
