"""Addresses of pages: with fields that someone else added, and such as lead nowhere."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.plugins.web.test_plan_pages import open_stub_site
from tests.support.finished_tasks import store_finished_task
from waystation.config.settings import Settings
from waystation.plugins.web.forms import extract_field_errors
from waystation.tasks.report_links import NewReportLink


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    return Settings(home=tmp_path / "home", offline=True)


async def test_pages_ignore_fields_that_a_mail_client_adds_to_a_link_and_the_api_refuses_them(
    settings: Settings,
) -> None:
    task = await store_finished_task(settings)
    async with open_stub_site(settings) as (asking, _):
        paths = ("/", "/spending", f"/tasks/{task}/activity", f"/tasks/{task}", "/sessions", "/schedules")
        shown = {path: (await asking.get(f"{path}?utm_source=mail")).status_code for path in paths}
        refused = {
            path: (await asking.get(f"{path}?utm_source=mail")).status_code for path in ("/v1/tasks", "/v1/spending")
        }
    assert set(shown.values()) == {200}, shown
    assert set(refused.values()) == {422}, refused


async def test_a_page_that_does_not_exist_says_so_to_a_person_and_leads_home(settings: Settings) -> None:
    async with open_stub_site(settings) as (asking, _):
        for path in ("/nope", "/tasks/nope", "/answers/approve"):
            found = await asking.get(path)
            assert found.status_code in {404, 405}, path
            assert "This site has no page at this address." in found.text
            assert '<a href="/">' in found.text
            assert "openapi" not in found.text
        program = await asking.get("/v1/nope")
    assert "/v1/openapi.json lists all addresses" in program.json()["detail"]


async def test_a_day_or_a_number_that_is_none_is_refused_with_an_example(settings: Settings) -> None:
    async with open_stub_site(settings) as (asking, _):
        day = await asking.get("/spending?since=soon")
        number = await asking.get("/sessions?first=many")
    assert (day.status_code, number.status_code) == (422, 422)
    assert "it should be a day, like 2026-11-30" in day.text
    assert "it should be a whole number, like 30" in number.text
    with pytest.raises(ValidationError) as refused:
        NewReportLink.model_validate({"days": "1.5"})
    assert extract_field_errors(refused.value) == {"days": "it should be a whole number, like 30"}
