"""Documents into memory on the real server: after the report, by a workflow of its own, for later tasks."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client as TemporalClient
from temporalio.client import WorkflowExecutionStatus, WorkflowHandle

from tests.live.test_live_document_updates import NEWER, submit_document_update, write_folder
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import QUOTED_SENTENCE, CallGate, ModelCall, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, make_task_request, open_activity_deps, run_all_workers
from waystation.client import Client
from waystation.client.erasure import TaskSelection, forget_selected_tasks, select_task_ids
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.refs import RunRef
from waystation.kernel.temporal_names import make_indexing_workflow_id
from waystation.memory.indexing import render_recalled_excerpts
from waystation.memory.passage_builder import IndexingState
from waystation.memory.passages import MemoryQuery
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.tasks.signals import ContextEditInput
from waystation.tasks.task import make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps
from waystation.workflows.index_documents import IndexDocumentsWorkflow

NAME, PLACEHOLDER = "Ada Lovelace", "<PERSON_7f3a2c91d04e>"
PILOT = SourceDocument(name="pilot.md", text=f"The bar carries two fathoms.\n{NAME} keeps the white beacon.\n")


class Holding(PlainRedactor):
    """Never comes back when the document is read for the first time."""

    def __init__(self) -> None:
        super().__init__({})
        self.reached = asyncio.Event()

    async def redact(self, texts: Sequence[str], place: TextDestination, tenant: str) -> tuple[RedactionResult, ...]:
        if list(texts) == [PILOT.text] and place is TextDestination.COMPRESSED and not self.reached.is_set():
            self.reached.set()
            await asyncio.Event().wait()
        return await super().redact(texts, place, tenant)


def remembering(server: TemporalClient, request_id: str) -> WorkflowHandle[IndexDocumentsWorkflow, IndexingState]:
    return server.get_workflow_handle_for(
        IndexDocumentsWorkflow.run, make_indexing_workflow_id(make_task_id(make_task_request(request_id)))
    )


async def delivered(server: TemporalClient, counter: TaskSubmitter, request_id: str, characters: int) -> IndexingState:
    """A task that has ended, with its documents in memory."""
    under = make_task_config().replace(remembered_characters=characters)
    await counter.submit(make_task_request(request_id), under, [PILOT])
    await counter.get_task_handle(request_id).result()
    return await remembering(server, request_id).result()


async def recalled(parts: ActivityDeps, request_id: str) -> str:
    ref = (await parts.store.get_task(make_task_id(make_task_request(request_id)), SYSTEM_SCOPE)).ref
    run = RunRef(**ref.model_dump(), step_id="harbours", role="research")
    return render_recalled_excerpts(await parts.memory_recall.find(run, "Who keeps the white beacon?"))


async def documents_in_memory(parts: ActivityDeps, tenant: str) -> int:
    query = MemoryQuery(tenant=tenant, session=None, kinds=("document",), text="the white beacon", dense=None)
    return len(await parts.memory.search(query))


async def test_later_tasks_recall_documents_of_earlier_ones_until_the_last_is_forgotten(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    redactor = PlainRedactor({}, {NAME: PLACEHOLDER})
    async with (
        open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        done = await delivered(server, counter, "first", 1_000)
        assert (done.characters, done.skipped_characters, done.passages) == (len(PILOT.text), 0, 1)
        await delivered(server, counter, "second", 1_000)
        assert await documents_in_memory(parts, done.ref.tenant) == 1
        await counter.submit(make_task_request("later"), documents=())
        await counter.get_task_handle("later").result()
        found = await recalled(parts, "later")
        assert "[pilot.md:1-2]" in found
        assert f"{PLACEHOLDER} keeps the white beacon." in found
        for request_id, left in (("first", 1), ("second", 0)):
            (task_id,) = await select_task_ids(
                client, settings, TaskSelection(task=make_task_id(make_task_request(request_id)))
            )
            await forget_selected_tasks(settings, (task_id,), everything=True)
            assert await documents_in_memory(parts, done.ref.tenant) == left
            assert ("[pilot.md:1-2]" in await recalled(parts, "later")) is bool(left)


async def test_when_a_task_goes_on_after_its_end_what_changed_meanwhile_comes_into_memory(
    server: TemporalClient, tmp_path: Path, settings: Settings
) -> None:
    crew, gate = ScriptedTaskModel(), CallGate(ModelCall("harbours", 3))
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}, {NAME: PLACEHOLDER}), crew) as parts,
        run_all_workers(server, parts),
        await Client.connect(settings) as client,
    ):
        counter = TaskSubmitter(server, parts.store)
        first = await delivered(server, counter, "first", 1_000)
        crew.before = gate
        await counter.edit(ContextEditInput(action="rewind", agent="harbours", message="m5"))
        await gate.reached.wait()
        await submit_document_update(
            counter, counter.get_task_handle(), write_folder(tmp_path / "docs", pilot=NEWER, buoys="One white beacon.")
        )
        gate.opened.set()
        await counter.get_task_handle().result()
        second = await remembering(server, "first").result()
        await counter.submit(make_task_request("later"), documents=())
        await counter.get_task_handle("later").result()
        found = await recalled(parts, "later")
        in_memory = await documents_in_memory(parts, first.ref.tenant)
        (task_id,) = await select_task_ids(client, settings, TaskSelection(task=first.ref.task_id))
        gone = await forget_selected_tasks(settings, (task_id,), everything=True)
        left = await documents_in_memory(parts, first.ref.tenant)
    assert (first.passages, second.passages, in_memory) == (1, 2, 2)
    assert "The bar carries three fathoms." in found
    assert "two fathoms" not in found
    assert (left, gone.histories) == (0, 4), "the task and its documents, each twice"


async def test_documents_that_a_task_is_given_while_it_works_come_into_memory_when_it_began_without_any(
    server: TemporalClient, tmp_path: Path
) -> None:
    gate = CallGate(ModelCall("harbours", 3))
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel(before=gate)) as parts,
        run_all_workers(server, parts),
    ):
        counter = TaskSubmitter(server, parts.store)
        under = make_task_config().replace(remembered_characters=1_000)
        await counter.submit(make_task_request("first"), under, documents=())
        await gate.reached.wait()
        await submit_document_update(
            counter, counter.get_task_handle(), write_folder(tmp_path / "docs", buoys="One white beacon.")
        )
        gate.opened.set()
        await counter.get_task_handle().result()
        done = await remembering(server, "first").result()
    assert (done.passages, done.characters) == (1, len("One white beacon."))


async def test_a_task_that_ends_again_while_its_documents_are_read_has_them_read_once_more(
    server: TemporalClient, tmp_path: Path
) -> None:
    crew, redactor = ScriptedTaskModel(), Holding()
    async with open_activity_deps(tmp_path, redactor, crew) as parts, run_all_workers(server, parts):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit(
            make_task_request("first"), make_task_config().replace(remembered_characters=1_000), [PILOT]
        )
        await counter.get_task_handle().result()
        await redactor.reached.wait()
        first = await remembering(server, "first").describe()
        await counter.edit(ContextEditInput(action="rewind", agent="harbours", message="m5"))
        await counter.get_task_handle().result()
        second = await remembering(server, "first").result()
        replaced = await server.get_workflow_handle(first.id, run_id=first.run_id).describe()
        in_memory = await documents_in_memory(parts, second.ref.tenant)
    assert replaced.status == WorkflowExecutionStatus.TERMINATED
    assert (second.passages, in_memory) == (1, 1)


async def test_its_history_has_no_word_of_a_document_and_begins_when_the_report_is_stored(
    server: TemporalClient, tmp_path: Path
) -> None:
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
    ):
        counter = TaskSubmitter(server, parts.store)
        await delivered(server, counter, "first", 1_000)
        events = (await counter.get_task_handle().fetch_history()).events
        history = "".join(map(str, (await remembering(server, "first").fetch_history()).events))
    started = EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED
    (begun,) = [event.event_id for event in events if event.event_type == started]
    stored = max(event.event_id for event in events if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED)
    assert begun > stored
    for word in ("fathoms", NAME, "pilot.md", QUOTED_SENTENCE):
        assert word not in history


async def test_a_task_whose_terms_say_nothing_of_memory_starts_nothing_more(
    server: TemporalClient, tmp_path: Path
) -> None:
    async with (
        open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts),
    ):
        counter = TaskSubmitter(server, parts.store)
        await counter.submit()
        await counter.get_task_handle().result()
        events = (await counter.get_task_handle().fetch_history()).events
    assert EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED not in {event.event_type for event in events}
