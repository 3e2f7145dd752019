"""Under which policy a task's text is redacted, and why its work is tried again: wherever people look."""

from datetime import UTC, datetime

import pytest
from rich.console import Console

from tests.reports.test_report import make_report_parts
from tests.support.view_values import VIEWED_PROGRESS
from waystation.agents.deliverables import ReportDraft
from waystation.cli.render import render_changes, render_task_screen
from waystation.privacy.policy import RedactionPolicy
from waystation.reports.report import ReportAppendix, render_report
from waystation.tasks.details import render_task_details
from waystation.tasks.task import TaskProgress
from waystation.tasks.view import TaskView

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WAITS = "the activity RunResearchAgent is being retried: RedactionFailed: the redactor is down"


def screen(view: TaskView) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        console.print(render_task_screen(view, NOON, 200), soft_wrap=True)
    return captured.get()


def under(policy: RedactionPolicy | None) -> TaskProgress:
    return VIEWED_PROGRESS.replace(privacy=policy)


def report(progress: TaskProgress) -> str:
    return render_report(make_report_parts(ReportDraft(), progress), "", ReportAppendix())


@pytest.mark.parametrize("policy", RedactionPolicy)
def test_the_policy_is_told_in_show_in_the_temporal_ui_and_in_the_report(policy: RedactionPolicy) -> None:
    told = f"Privacy {policy}: {policy.text}"
    progress = under(policy)
    assert f"{told}\n" in screen(TaskView.from_progress(progress))
    assert f"\n\n{told}" in render_task_details(TaskView.from_progress(progress))
    account = report(progress).split("## About this report")[1]
    assert f"\n- {told}\n" in account
    assert TaskView.from_progress(progress).privacy == policy


def test_of_a_task_from_before_nothing_is_claimed() -> None:
    progress = under(None)
    for told in (
        screen(TaskView.from_progress(progress)),
        render_task_details(TaskView.from_progress(progress)),
        report(progress),
    ):
        assert "Privacy" not in told


def test_why_work_is_tried_again_is_told_once() -> None:
    before, waiting = (
        TaskView.from_progress(VIEWED_PROGRESS),
        TaskView.from_progress(VIEWED_PROGRESS).replace(waiting_for=(WAITS,)),
    )
    assert WAITS in screen(waiting)
    assert render_changes(before, waiting, NOON, 80) == (WAITS,)
    assert render_changes(waiting, waiting, NOON, 80) == ()
    assert waiting.waiting_for == (WAITS,)
