"""A plan that is edited in its page, and sent over the HTTP API."""

import html
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, NO_SERVER, SITE, store_running_task
from tests.end_to_end.pages_server import StubTaskClient, make_plan_request
from waystation.config.settings import Settings
from waystation.planning.plan import Plan, build_standard_plan
from waystation.plugins.web.access import get_required_role
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.plugins.web.plan_forms import (
    add_form_step,
    build_plan_of_form,
    list_form_steps,
    parse_form_steps,
    remove_form_step,
)

PLAN = build_standard_plan("Which?")


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@asynccontextmanager
async def open_stub_site(settings: Settings) -> AsyncGenerator[tuple[httpx2.AsyncClient, StubTaskClient]]:
    async with await StubTaskClient.connect(settings) as client:
        transport = httpx2.ASGITransport(app=create_app(SITE, client, settings.tenant, ServerDeps(ACCESS)))
        async with httpx2.AsyncClient(transport=transport, base_url=HERE, headers=BEARER) as asking:
            yield asking, client


def fill_form(plan: Plan, **more: str) -> Mapping[str, str]:
    """Fill the form as a browser sends it."""
    fields = {"mark": ACCESS.csrf_token, "request_id": "plan-1"}
    for step in list_form_steps(plan):
        texts = {"id": step.id, "role": step.role, "title": step.title, "goal": step.goal, "share": step.share}
        fields |= {f"{name}-{step.number}": text for name, text in texts.items()}
        fields |= {f"needs-{step.number}-{need}": "yes" for need in step.needs}
    return {**fields, **more}


def test_a_form_holds_the_plan_and_adds_and_removes_steps() -> None:
    steps = list_form_steps(PLAN)
    assert build_plan_of_form(parse_form_steps(fill_form(PLAN))) == PLAN
    more = add_form_step(steps)
    assert [step.id for step in more] == ["research-1", "research-2", "analysis", "research-3", "writing"]
    assert more[-1].needs == {"analysis", "research-3"}
    fewer = remove_form_step(steps, "research-2")
    assert [(step.number, step.id) for step in fewer] == [(1, "research-1"), (2, "analysis"), (3, "writing")]
    assert build_plan_of_form(fewer).get_step("analysis").needs == ("research-1",)


async def test_an_edited_plan_is_sent_from_its_page_and_the_second_person_is_told_that_it_changed(
    settings: Settings,
) -> None:
    task = await store_running_task(settings)
    async with open_stub_site(settings) as (asking, client):
        client.requests = (make_plan_request(),)
        page = await asking.get(f"/tasks/{task}/plan")
        on_task = await asking.get(f"/tasks/{task}")
        sent = await asking.post(
            f"/tasks/{task}/plan/approve", data=fill_form(PLAN, **{"goal-1": "Read about tides.", "by": "Ada"})
        )
        late = await asking.post(
            f"/tasks/{task}/plan/approve", data=fill_form(PLAN, **{"goal-1": "Read about <silt>.", "by": "Bo"})
        )
        over = await asking.get(f"/tasks/{task}/plan")
    assert (page.status_code, page.text.count('<fieldset class="step">')) == (200, 4)
    assert f'href="/tasks/{task}/plan">Read or edit the plan</a>' in on_task.text
    assert (sent.status_code, sent.headers["location"]) == (303, f"/tasks/{task}")
    assert client.reviewed is not None
    assert client.reviewed.get_step("research-1").goal == "Read about tides."
    assert client.reviewed.get_step("analysis").needs == ("research-1", "research-2")
    assert late.status_code == 409
    assert "This plan no longer waits for approval" in late.text
    assert "Ada" in late.text
    assert "Read about &lt;silt&gt;." in late.text
    assert 'id="plan"' not in late.text
    assert "This plan does not wait for approval." in over.text


async def test_a_plan_that_waits_shows_its_notes_in_its_card_and_what_the_rest_of_the_budget_is_for(
    settings: Settings,
) -> None:
    task, note = await store_running_task(settings), "The budget is too small for a model to plan."
    async with open_stub_site(settings) as (asking, client):
        client.requests, client.notes = (make_plan_request(),), (note,)
        waiting = await asking.get(f"/tasks/{task}")
        plan = await asking.get(f"/tasks/{task}/plan")
        client.requests = tuple(one.replace(decision="approved") for one in client.requests)
        later = await asking.get(f"/tasks/{task}")
    card = waiting.text.partition('<article class="request">')[2].partition("</article>")[0]
    assert (waiting.text.count(note), card.count(note)) == (1, 1)
    assert "Messages and notes" not in waiting.text
    assert note in plan.text
    assert (
        "All steps together may spend 599,965 tokens: the rest of the budget of 600,000 tokens is for planning, "
        "revisions of the plan, and reviews and judgements of the report. "
    ) in plan.text
    assert "Messages and notes" in later.text
    assert note in later.text


async def test_a_refused_plan_comes_back_filled_in_with_each_message_at_its_field(settings: Settings) -> None:
    task = await store_running_task(settings)
    wrong = fill_form(PLAN, **{"goal-1": " ", "title-1": "Kept", "role-2": "poet", "share-3": "much", "note": "n"})
    async with open_stub_site(settings) as (asking, client):
        client.requests = (make_plan_request(),)
        role = await asking.post(f"/tasks/{task}/plan/approve", data=wrong)
        rest = await asking.post(f"/tasks/{task}/plan/approve", data={**wrong, "role-2": "research"})
        client.away = True
        away = await asking.post(f"/tasks/{task}/plan/approve", data={**fill_form(PLAN), "title-1": "Kept"})
    assert (role.status_code, rest.status_code, away.status_code) == (400, 400, 503)
    assert 'id="plan-role-2-fault"' in role.text
    for name, said in (("goal-1", "Step 'research-1' has no goal."), ("share-3", "Step 'analysis' has an invalid")):
        assert f'aria-describedby="plan-{name}-fault"' in rest.text
        assert said in html.unescape(rest.text)
    assert 'value="Kept"' in rest.text
    assert 'name="note" value="n"' in rest.text
    assert "No Temporal server answers" in away.text
    assert 'value="Kept"' in away.text
    assert client.reviewed is None


async def test_a_step_is_added_and_removed_without_scripts_and_nothing_is_sent(settings: Settings) -> None:
    task = await store_running_task(settings)
    async with open_stub_site(settings) as (asking, client):
        client.requests = (make_plan_request(),)
        added = await asking.post(f"/tasks/{task}/plan/draft", data=fill_form(PLAN, note="kept"))
        removed = await asking.post(f"/tasks/{task}/plan/draft?remove=research-2", data=fill_form(PLAN))
        entered = await asking.post(f"/tasks/{task}/plan/draft?keep=yes", data=fill_form(PLAN))
        many = PLAN
        for _ in range(9):
            many = Plan(steps=(many.steps[0].replace(id=f"more-{len(many.steps)}"), *many.steps))
        too_many = await asking.post(f"/tasks/{task}/plan/approve", data=fill_form(many))
    assert [one.status_code for one in (added, removed, entered)] == [200, 200, 200]
    assert [one.text.count('<fieldset class="step">') for one in (added, removed, entered)] == [5, 3, 4]
    assert 'name="needs-5-research-3" value="yes" checked' in added.text
    assert 'name="note" value="kept"' in added.text
    assert "research-2" not in removed.text
    assert (too_many.status_code, "A plan has 3 to 12 steps, but this one has 13" in too_many.text) == (400, True)
    assert client.reviewed is None


async def test_a_plan_is_read_and_replaced_over_http_once(settings: Settings) -> None:
    task = await store_running_task(settings)
    body = {**PLAN.model_dump(mode="json"), "request_id": "plan-1", "by": "Ada"}
    async with open_stub_site(settings) as (asking, client):
        client.requests = (make_plan_request(),)
        read = await asking.get(f"/v1/tasks/{task}/plan")
        wrong = await asking.post(f"/v1/tasks/{task}/plan/approve", json={"steps": body["steps"][:1]})
        sent = await asking.post(f"/v1/tasks/{task}/plan/approve", json=body)
        late = await asking.post(f"/v1/tasks/{task}/plan/approve", json=body)
    assert [step["id"] for step in read.json()["plan"]["steps"]] == [step.id for step in PLAN.steps]
    assert (wrong.status_code, "a plan has 3 to 12 steps" in wrong.json()["detail"]) == (400, True)
    assert (sent.status_code, sent.json()["outcome"]) == (200, "approved")
    assert (late.status_code, "this plan no longer waits for approval" in late.json()["detail"]) == (409, True)
    assert client.reviewed == PLAN


def test_replacing_a_plan_needs_the_role_that_approves() -> None:
    assert get_required_role("POST", "/tasks/task-1/plan/approve") == "approve"
    assert get_required_role("POST", "/v1/tasks/task-1/plan/approve") == "approve"
