import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities.tasks import NoticeActivities
from tests.unit.notice_values import ASKED
from waystation.testing import ListNotifier


def page(task_id: str) -> str:
    return f"http://ui/{task_id}"


async def test_a_notice_goes_out_with_the_page_of_its_task() -> None:
    notifier = ListNotifier()
    await ActivityEnvironment().run(NoticeActivities(notifier, page).send, ASKED)
    assert notifier.sent == [(ASKED, f"http://ui/{ASKED.task_id}")]


async def test_a_worker_without_a_webhook_leaves_the_notice_to_the_next_attempt() -> None:
    with pytest.raises(ApplicationError, match="has neither WAYSTATION_WEBHOOK nor WAYSTATION_NOTIFY") as failed:
        await ActivityEnvironment().run(NoticeActivities(None, page).send, ASKED)
    assert not failed.value.non_retryable
