"""A session that is forgotten from its page, and over the HTTP API."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, NO_SERVER, store_running_task
from tests.end_to_end.pages_server import NOON
from tests.plugins.web.test_plan_pages import open_stub_site
from tests.support.finished_tasks import store_finished_task
from waystation.client import Client
from waystation.client.erasure import TaskSelection, forget_tasks_and_schedules, select_schedules
from waystation.config.settings import Settings
from waystation.kernel.errors import Unreachable
from waystation.plugins.web.access import get_required_role

SESSION = "default"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


def fill_form(**more: str) -> Mapping[str, str]:
    """Fill the form as a browser sends it."""
    return {"mark": ACCESS.csrf_token, "name": SESSION, "confirm": SESSION, **more}


async def find_session(client: Client) -> str:
    """Return the session of the only task."""
    (task,) = await client.list_tasks()
    return task.session


async def test_a_session_is_forgotten_once_its_name_was_typed(settings: Settings) -> None:
    await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        name = await find_session(client)
        page = await asking.get("/session", params={"name": name})
        wrong = await asking.post("/session/forget", data=fill_form(name=name, confirm="other", everything="yes"))
        untouched = client.forgotten
        sent = await asking.post("/session/forget", data=fill_form(name=name, confirm=name, everything="yes"))
    assert "Forget this session" in page.text
    assert (wrong.status_code, untouched) == (400, None)
    assert 'aria-describedby="forget-confirm-fault"' in wrong.text
    assert 'name="everything" value="yes" checked' in wrong.text
    assert (sent.status_code, client.forgotten) == (200, (name, True))
    assert "Forgotten: 1 task, 2 passages" in sent.text
    assert "Backups still contain it." in sent.text


async def test_the_address_of_a_form_that_was_sent_leads_back_to_its_session(settings: Settings) -> None:
    await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        name = await find_session(client)
        page = await asking.get("/session", params={"name": name})
        addresses = re.findall(r'action="(/session/[^"]+)"', page.text)
        led = {address.partition("?")[0]: await asking.get(address) for address in addresses}
        unnamed = await asking.get("/session/forget")
    assert led.keys() == {"/session/limit", "/session/forget"}
    assert {one.headers["location"] for one in led.values()} == {f"/session?name={name}"}
    assert (unnamed.status_code, unnamed.headers["location"]) == (303, "/sessions")


async def test_the_schedules_of_a_session_are_removed_with_its_questions_and_named_before(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "a.md").write_text("# A\n")
    await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        for name, session in (("weekly", SESSION), ("other", "elsewhere")):
            wish = {"question": f"Asked {name}?", "paths": [str(tmp_path)], "cron": "0 7 * * 1"}
            await asking.post("/v1/schedules", json={**wish, "session": session, "name": name})
        page = await asking.get("/session", params={"name": SESSION})
        selection = TaskSelection(session=SESSION)
        tenant = settings.tenant
        kept = await select_schedules(client, tenant, selection, everything=False)
        found = await select_schedules(client, tenant, selection, everything=True)
        everyone = await select_schedules(client, tenant, TaskSelection(all_of_tenant=True), everything=True)
        old = await select_schedules(client, tenant, TaskSelection(session=SESSION, ended_before=NOON), everything=True)
        with pytest.raises(Unreachable):
            await forget_tasks_and_schedules(client, settings, selection, ("task-1",), everything=True)
        (left,) = (await asking.get("/v1/schedules")).json()
    assert "reports and histories, and remove 1 schedule</label>" in page.text
    assert '<a href="/schedules#weekly">Asked weekly?</a>' in page.text
    assert "Asked other?" not in page.text
    assert [one.name for one in found] == ["weekly"]
    assert (kept, len(everyone), old) == ((), 2, ())
    assert left["name"] == "other"


async def test_a_session_that_does_not_exist_is_not_shown_as_an_empty_one(settings: Settings) -> None:
    async with open_stub_site(settings) as (asking, _):
        page = await asking.get("/session", params={"name": "nope"})
    assert (page.status_code, "There is no session named nope." in page.text) == (404, True)


async def test_a_session_at_work_is_not_forgotten(settings: Settings) -> None:
    await store_running_task(settings)
    async with open_stub_site(settings) as (asking, client):
        sent = await asking.post("/session/forget", data=fill_form())
    assert (sent.status_code, client.forgotten) == (400, None)
    assert "The task “Which?” is running: wait until it has ended, or cancel it" in sent.text


async def test_a_session_is_forgotten_over_http_with_its_name_in_the_body(settings: Settings) -> None:
    await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, client):
        name = await find_session(client)
        wrong = await asking.post(f"/v1/sessions/{name}/forget", json={"confirm": "other"})
        missing = await asking.post(f"/v1/sessions/{name}/forget", json={})
        untouched = client.forgotten
        sent = await asking.post(f"/v1/sessions/{name}/forget", json={"confirm": name})
    assert (wrong.status_code, missing.status_code, untouched) == (400, 422, None)
    assert (sent.status_code, sent.json()["removed"]["passages"]) == (200, 2)
    assert client.forgotten == (name, False)


async def test_without_a_server_nothing_is_forgotten_and_the_page_says_so(settings: Settings) -> None:
    await store_finished_task(settings)
    async with await Client.connect(settings) as client:
        name = await find_session(client)
        with pytest.raises(Unreachable):
            await client.forget_session(name, everything=False)


def test_forgetting_needs_the_role_that_approves() -> None:
    assert get_required_role("POST", "/session/forget") == "approve"
    assert get_required_role("POST", "/v1/sessions/any/name/forget") == "approve"
