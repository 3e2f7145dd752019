"""A store that does not answer is not one in which a text is missing: the work is tried again, and nobody is told that
what they look for is gone.
"""

import pytest
from temporalio.exceptions import ApplicationError

from tests.memory.test_document_indexer import PILOT, make_indexing_environment
from tests.reports.test_publisher import DRAFT, PROGRESS, submit_deliverable
from tests.support.agent_environment import NOON, AgentEnvironment, make_tool_use
from tests.tasks.test_context_editor import make_edit_request
from waystation.activities.ledger import (
    DocumentsUpdateResult,
    MessageActivities,
    StoreMessageRequest,
    StoreMessageResult,
    UpdateDocumentsRequest,
)
from waystation.agents.task_messages import TaskMessage
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.errors import StoreUnavailable, TextNotFoundError
from waystation.kernel.scopes import ReadScope
from waystation.privacy.policy import RedactedText, RedactedTextKey
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.context_editor import ContextEditor
from waystation.tasks.earlier_tasks import EarlierTaskReader
from waystation.tasks.signals import PendingMessage

GONE = "0" * 64


class AwayStore(SqlStore):
    """Texts cannot be read from it now."""

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        raise StoreUnavailable("the database does not answer")

    async def get_redacted_text(self, key: RedactedTextKey, reader: ReadScope) -> RedactedText | None:
        raise StoreUnavailable("the database does not answer")


class ForgottenStore(SqlStore):
    """All texts are gone from it."""

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        raise TextNotFoundError(blob)

    async def get_redacted_text(self, key: RedactedTextKey, reader: ReadScope) -> RedactedText | None:
        return None


def put(env: AgentEnvironment, kind: type[SqlStore]) -> None:
    env.store = kind(env.store.database, env.clock, env.store_id)


async def test_an_agent_is_refused_a_stored_result_that_is_missing_and_none_while_the_store_is_away(
    env: AgentEnvironment,
) -> None:
    call = make_tool_use("read_stored", id=GONE)
    assert (await env.call_tool(call)).startswith("ERROR Nothing is stored under")
    put(env, AwayStore)
    with pytest.raises(StoreUnavailable):
        await env.call_tool(call)


async def test_the_document_behind_a_passage_is_kept_while_the_store_is_away(bare_env: AgentEnvironment) -> None:
    later = await make_indexing_environment(bare_env, "task-1", PILOT)
    await later.remember()
    call = make_tool_use("expand", id=later.in_memory[0].short_id)
    put(later.env, ForgottenStore)
    assert (await later.env.call_tool(call)).endswith("is no longer stored.")
    put(later.env, AwayStore)
    with pytest.raises(StoreUnavailable):
        await later.env.call_tool(call)


async def test_an_earlier_report_that_was_forgotten_is_none_and_one_that_cannot_be_read_now_is_tried_again(
    env: AgentEnvironment,
) -> None:
    await submit_deliverable(env, "writing", DRAFT)
    await env.publisher.publish(env.ref, PROGRESS)

    async def report(kind: type[SqlStore]) -> str | None:
        store = kind(env.store.database, env.clock, env.store_id)
        return await EarlierTaskReader(store).load_report(env.run_ref(), env.task_id, "session")

    assert await report(SqlStore) is not None
    assert await report(ForgottenStore) is None
    with pytest.raises(StoreUnavailable):
        await report(AwayStore)


async def test_instructions_are_refused_where_they_are_missing_and_awaited_where_the_store_is(
    env: AgentEnvironment,
) -> None:
    request = make_edit_request(env, action="compact", instructions=GONE)
    refused = await ContextEditor(env.compactor).edit(request)
    assert (refused.state, "not in the task's store" in refused.reason) == ("refused", True)
    put(env, AwayStore)
    with pytest.raises(StoreUnavailable):
        await ContextEditor(env.compactor).edit(request)


async def test_words_and_documents_that_people_send_are_refused_only_where_they_are_missing(
    env: AgentEnvironment,
) -> None:
    told = StoreMessageRequest(
        task_id=env.task_id, message=PendingMessage(task_message=TaskMessage(number=1, sent_at=NOON), message=GONE)
    )
    update = DocumentsUpdate(number=1, document_set=GONE, updated_at=NOON)
    changed = UpdateDocumentsRequest(task_id=env.task_id, update=update)

    async def both() -> tuple[StoreMessageResult, DocumentsUpdateResult]:
        kept = await MessageActivities(env.store).store_message(told)
        return kept, await MessageActivities(env.store).update_documents(changed)

    assert all("not in the task's store" in one.reason for one in await both())
    put(env, AwayStore)
    with pytest.raises(ApplicationError, match=r"^StoreUnavailable: the database does not answer$"):
        await MessageActivities(env.store).store_message(told)
    with pytest.raises(ApplicationError, match=r"^StoreUnavailable: the database does not answer$"):
        await MessageActivities(env.store).update_documents(changed)
