"""A store that does not answer is not one in which a text is missing: the work is tried again, and nobody is told that
what they look for is gone.
"""

import pytest
from temporalio.exceptions import ApplicationError

from activities.bookkeeping import (
    DocumentsUpdateResult,
    SentActivities,
    StoreMessageRequest,
    StoreMessageResult,
    UpdateRequest,
)
from tests.agents.office import NOON, Office, use
from tests.agents.test_editor import asking
from tests.agents.test_librarian import PILOT, shelf
from tests.agents.test_publisher import DRAFT, PROGRESS, hand_in
from waystation.agents.task_brief import EarlierTasks
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.errors import StoreUnavailable, TextNotFoundError
from waystation.kernel.scopes import Reader
from waystation.privacy.policy import RedactedText, RedactedTextKey
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.context_editor import Editor
from waystation.tasks.signals import Words
from waystation.tasks.task import Telling

GONE = "0" * 64


class AwayStore(SqlStore):
    """Texts cannot be read from it now."""

    async def get_text(self, blob: str, reader: Reader) -> str:
        raise StoreUnavailable("the database does not answer")

    async def shown(self, key: RedactedTextKey, reader: Reader) -> RedactedText | None:
        raise StoreUnavailable("the database does not answer")


class ForgottenStore(SqlStore):
    """All texts are gone from it."""

    async def get_text(self, blob: str, reader: Reader) -> str:
        raise TextNotFoundError(blob)

    async def shown(self, key: RedactedTextKey, reader: Reader) -> RedactedText | None:
        return None


def put(office: Office, kind: type[SqlStore]) -> None:
    office.store = kind(office.store.database, office.clock, office.store_id)


async def test_an_agent_is_refused_a_stored_result_that_is_missing_and_none_while_the_store_is_away(
    office: Office,
) -> None:
    call = use("read_stored", id=GONE)
    assert (await office.call(call)).startswith("ERROR Nothing is stored under")
    put(office, AwayStore)
    with pytest.raises(StoreUnavailable):
        await office.call(call)


async def test_the_document_behind_a_passage_is_kept_while_the_store_is_away(bare_office: Office) -> None:
    later = await shelf(bare_office, "task-1", PILOT)
    await later.remember()
    call = use("expand", id=later.in_memory[0].short_id)
    put(later.office, ForgottenStore)
    assert (await later.office.call(call)).endswith("is not kept any more.")
    put(later.office, AwayStore)
    with pytest.raises(StoreUnavailable):
        await later.office.call(call)


async def test_an_earlier_report_that_was_forgotten_is_none_and_one_that_cannot_be_read_now_is_tried_again(
    office: Office,
) -> None:
    await hand_in(office, "writing", DRAFT)
    await office.publisher.publish(office.ref, PROGRESS)

    async def report(kind: type[SqlStore]) -> str | None:
        store = kind(office.store.database, office.clock, office.store_id)
        return await EarlierTasks(store).report(office.run_ref(), office.task_id, "session")

    assert await report(SqlStore) is not None
    assert await report(ForgottenStore) is None
    with pytest.raises(StoreUnavailable):
        await report(AwayStore)


async def test_instructions_are_refused_where_they_are_missing_and_awaited_where_the_store_is(office: Office) -> None:
    request = asking(office, action="compact", instructions=GONE)
    refused = await Editor(office.condenser).edit(request)
    assert (refused.state, "not in the task's store" in refused.reason) == ("refused", True)
    put(office, AwayStore)
    with pytest.raises(StoreUnavailable):
        await Editor(office.condenser).edit(request)


async def test_words_and_documents_that_people_send_are_refused_only_where_they_are_missing(office: Office) -> None:
    told = StoreMessageRequest(
        task_id=office.task_id, words=Words(telling=Telling(number=1, told_at=NOON), message=GONE)
    )
    update = DocumentsUpdate(number=1, given=GONE, updated_at=NOON)
    changed = UpdateRequest(task_id=office.task_id, update=update)

    async def both() -> tuple[StoreMessageResult, DocumentsUpdateResult]:
        kept = await SentActivities(office.store).keep(told)
        return kept, await SentActivities(office.store).update(changed)

    assert all("not in the task's store" in one.reason for one in await both())
    put(office, AwayStore)
    with pytest.raises(ApplicationError, match=r"^StoreUnavailable: the database does not answer$"):
        await SentActivities(office.store).keep(told)
    with pytest.raises(ApplicationError, match=r"^StoreUnavailable: the database does not answer$"):
        await SentActivities(office.store).update(changed)
