"""The page that shows every component of the pages, in a real browser: the design system is what is tested here."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.pages_server import make_budget_request
from tests.end_to_end.test_browser import CHROMIUM, launch_browser
from tests.support.finished_tasks import make_task_row
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.planning.plan import build_standard_plan
from waystation.plugins.web.forms import RejectedForm
from waystation.plugins.web.plan_forms import list_form_steps
from waystation.plugins.web.principals import Principal
from waystation.plugins.web.task_page import FOLDER, render_template
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import ApprovalView, PendingApproval, TaskView, as_stored

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on this machine: apt-get install chromium"),
    pytest.mark.timeout(240),
]
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


class FileRoute:
    """Answers requests with a file of the pages."""

    def __init__(self, path: Path, kind: str) -> None:
        self._body, self._kind = path.read_text(encoding="utf-8"), kind

    def __call__(self, route: Route) -> None:
        """Answer the request."""
        route.fulfill(body=self._body, content_type=self._kind)


def render_components(settings: Settings) -> str:
    row = make_task_row(TaskRequest(question="Which harbour?", request_id="r1"), settings)
    task = TaskView.from_progress(as_stored(row, TaskPhase.PAUSED)).with_stored_request(row.replace(title="Which?"))
    approval = ApprovalView.from_request(make_budget_request(1))
    return render_template(
        "components.html",
        who=Principal(name="Ada", tenant="local", proof="API key 1"),
        signed_in=True,
        path="/inbox",
        mark="",
        back=RejectedForm("new-task", {"budget": "lots"}, {"budget": "a budget is tokens like 600k"}),
        waiting=[PendingApproval(task_id=task.task_id, title="Which?", approval=approval)],
        tasks=[task],
        steps=list_form_steps(build_standard_plan("Which harbour?")),
        now=utc_now(),
    )


def test_no_component_has_a_serious_fault_narrow_or_wide_light_or_dark(tmp_path: Path) -> None:
    page_text = render_components(Settings(home=tmp_path, offline=True))
    with launch_browser() as started:
        page = started.new_page()
        for name, kind in (("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
            page.route(f"**/static/{name}", FileRoute(FOLDER / "static" / name, kind))
        page.route("**/static/*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
        page.route("http://pages.example/", lambda route: route.fulfill(body=page_text, content_type="text/html"))
        page.goto("http://pages.example/")
        expect(page.locator(".phase")).to_have_count(14)
        assert find_faults_in_all_layouts(page) == {}
