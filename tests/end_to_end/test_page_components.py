"""The page that shows every component of the pages, in a real browser: the design system is what is tested here."""

from collections.abc import Generator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from tests.end_to_end.axe_checks import find_faults_in_all_layouts
from tests.end_to_end.browser import launch_browser, needs_chromium
from tests.end_to_end.pages_server import make_budget_request
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
    needs_chromium,
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


@pytest.fixture
def page(tmp_path: Path) -> Generator[Page]:
    """The page that shows every component, without scripts."""
    page_text = render_components(Settings(home=tmp_path, offline=True))
    with launch_browser() as started:
        page = started.new_page()
        for name, kind in (("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
            page.route(f"**/static/{name}", FileRoute(FOLDER / "static" / name, kind))
        page.route("**/static/*.js", lambda route: route.fulfill(body="", content_type="text/javascript"))
        page.route("http://pages.example/", lambda route: route.fulfill(body=page_text, content_type="text/html"))
        page.goto("http://pages.example/")
        yield page


def test_no_component_has_a_serious_fault_narrow_or_wide_light_or_dark(page: Page) -> None:
    expect(page.locator(".phase")).to_have_count(14)
    assert find_faults_in_all_layouts(page) == {}


def list_boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Return the places of all elements in the page."""
    return page.eval_on_selector_all(
        selector,
        "(found) => found.map((one) => one.getBoundingClientRect())"
        ".map(({ top, height, left, right }) => ({ top, height, left, right }))",
    )


def test_controls_of_a_row_have_one_height_and_stand_on_one_line_with_their_labels(page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    for row in ("#row", "#inline", "#plan .row"):
        controls = list_boxes(page, f"{row} :is(input:not([type=hidden]), select, button)")
        assert len(controls) >= 3, row
        for place in ("top", "height"):
            assert len({round(one[place]) for one in controls}) == 1, (row, place, controls)
        labels = list_boxes(page, f"{row} label")
        assert len({round(one["top"]) for one in labels}) == 1, (row, labels)
    assert len({round(one["height"]) for one in list_boxes(page, ".toolbar > :is(a, span), .drop .pick > span")}) == 1


@pytest.mark.parametrize("width", [390, 1280])
def test_the_button_that_removes_a_file_never_stands_between_its_name_and_its_reason(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    (name, removes, why) = [list_boxes(page, f".drop li {one}")[0] for one in (".name", ".plain", ".why")]
    assert abs(removes["top"] - name["top"]) < name["height"] / 2
    assert removes["left"] >= name["right"]
    assert why["top"] >= removes["top"] + removes["height"] - 1
