"""Searches for leaked private values: runs a whole task on a real server, then inspects every place where data
remains.
"""

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import qdrant_edge as qe
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.workflowservice.v1 import DescribeWorkflowExecutionRequest, ListWorkflowExecutionsRequest
from temporalio.client import Client

from benchmarks.budgets.tables import print_table
from benchmarks.privacy.corpus import Sentence, sentences
from benchmarks.privacy.found import NAMES
from benchmarks.privacy.gossip import LeakingModel
from benchmarks.privacy.structured import build_document, generate_structures
from tests.attacks.structures import Structure
from tests.support.history_payloads import iter_payloads
from tests.support.task_model import make_task_config
from tests.support.temporal_platform import StrictWorkerPlugin, make_task_request, run_all_workers, start_dev_server
from tests.support.temporal_platform import TaskSubmitter as Desk
from tests.support.webhook_server import run_webhook_server
from waystation.config.settings import Settings
from waystation.context.transcript import SummaryPartRecord, SummaryRecord
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.scopes import SystemScope
from waystation.privacy.policy import RedactionPolicy
from waystation.runtime.store_setup import build_client_data_converter, build_payload_codec, open_store
from waystation.tasks.task import TaskConfig, TaskProgress, TaskRequest
from waystation.tasks.view import TaskView
from waystation.testing.doubles import RecordingMeter
from waystation.workers.activity_deps import ActivityDeps, open_activity_deps

KEY = "0123456789abcdef" * 4
IDENTIFIERS, SEED = 500, 1
DOCUMENTS = 6
PLAIN_NAMES = ("history of Ada Lovelace.md", "mail of anna.berg@example.org.md")
"""Documents that are named after people."""
NAMED = {"anna.berg@example.org": "EMAIL", "Ada Lovelace": "PERSON"}
NOTICE_SECONDS = 60.0
LOOK_SECONDS = 0.2
MODEL_SEES = frozenset({"requests to the model", "transcripts", "reports"})
"""Places where names stay under `standard`."""


@dataclass(frozen=True)
class PlantedValues:
    """Sentences and structures of several lines with private values, and where in the task they stand."""

    sentences: Sequence[Sentence]
    structures: Sequence[Structure] = ()

    @property
    def values_by_type(self) -> Mapping[str, str]:
        """Type of each value, without names and without what is part of another value."""
        found = self._found(names=False)
        return {
            value: type_ for value, type_ in found.items() if not any(value in one for one in found if one != value)
        }

    @property
    def names(self) -> Mapping[str, str]:
        """The same for names of people and places."""
        return self._found(names=True)

    def _found(self, *, names: bool) -> dict[str, str]:
        planted = NAMED | {
            sentence.text[label.start : label.end]: label.type
            for sentence in self.sentences
            for label in sentence.labels
            if label.private
        }
        return {value: type_ for value, type_ in planted.items() if (type_ in NAMES) is names}

    @property
    def structure_values(self) -> Mapping[str, str]:
        """The structure of each value that is private by the lines around it."""
        return {value: structure.name for structure in self.structures for value in structure.planted}

    @property
    def documents(self) -> tuple[SourceDocument, ...]:
        """Most sentences, each on a line of its own; some values are in the documents' names. And each structure."""
        names = [*PLAIN_NAMES, *(f"notes-{number}.md" for number in range(DOCUMENTS - len(PLAIN_NAMES)))]
        return (
            *(
                SourceDocument(name=name, text="\n".join(one.text for one in self.sentences[number::DOCUMENTS]))
                for number, name in enumerate(names)
            ),
            *(build_document(structure, f"staff-{number}") for number, structure in enumerate(self.structures)),
        )

    @property
    def request(self) -> TaskRequest:
        """A question, instructions and criteria with values of their own."""
        question, *instructions = [one.text for one in self.sentences[:40]]
        asked = make_task_request(question=question, instructions="\n".join(instructions))
        return asked.replace(accept=tuple(one.text for one in self.sentences[40:50]))


def build_planted_values(identifiers: int, seed: int, *, every: int = 1) -> PlantedValues:
    """As few sentences as have so many different values, and one of so many structures."""
    count, structures = identifiers // 2, generate_structures(seed)[::every]
    while len((found := PlantedValues(tuple(sentences(count, seed)), structures)).values_by_type) < identifiers:
        count += max(1, identifiers // 50)
    return found


@dataclass
class ObservedText:
    """Text by place."""

    texts: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    progress: TaskProgress | None = None

    def add(self, place: str, *texts: str) -> None:
        self.texts.setdefault(place, []).extend(texts)

    def count_leaks(self, place: str, values: Mapping[str, str]) -> Counter[str]:
        """Values by type that stand in a place, each counted once."""
        text = "\n".join(self.texts[place])
        return Counter(type_ for value, type_ in values.items() if value in text)

    def count_leaks_through_sql(self, place: str, values: Mapping[str, str]) -> Counter[str]:
        """The same for values that went through SQL: as they are, reversed, or in hexadecimal."""
        text = "\n".join(self.texts[place]).casefold()
        return Counter(
            type_
            for value, type_ in values.items()
            if any(form.casefold() in text for form in (value, value[::-1], value.encode().hex()))
        )


class _Logs(logging.Handler):
    """Every record of every logger, with its trace."""

    def __init__(self, seen: ObservedText) -> None:
        super().__init__()
        self._seen = seen
        self.setFormatter(logging.Formatter("%(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """See base class."""
        self._seen.add("logs", self.format(record))


async def run_planted_task(
    planted: PlantedValues, folder: Path, *, encrypted: bool, policy: RedactionPolicy = RedactionPolicy.STANDARD
) -> ObservedText:
    """A task to its end, and what is left of it everywhere."""
    seen, root = ObservedText(), logging.getLogger()
    logs, level = _Logs(seen), root.level
    root.addHandler(logs)
    root.setLevel(logging.DEBUG)
    try:
        await _run(planted, folder, seen, encrypted=encrypted, policy=policy)
    finally:
        root.removeHandler(logs)
        root.setLevel(level)
    return seen


async def _run(
    planted: PlantedValues, folder: Path, seen: ObservedText, *, encrypted: bool, policy: RedactionPolicy
) -> None:
    async with AsyncExitStack() as stack:
        webhook = await stack.enter_async_context(run_webhook_server())
        settings = Settings.model_validate(
            {
                "home": folder,
                "key": KEY,
                "encrypt_payloads": encrypted,
                "encrypt_at_rest": encrypted,
                "webhook": webhook.url,
                "privacy": policy,
            }
        )
        server = await stack.enter_async_context(start_dev_server())
        address = server.service_client.config.target_host
        client = await Client.connect(
            address, data_converter=build_client_data_converter(settings), plugins=[StrictWorkerPlugin(cached=True)]
        )
        store = await stack.enter_async_context(aclosing(await open_store(settings)))
        gossip = LeakingModel(planted.sentences)
        async with open_activity_deps(settings, store, RecordingMeter()) as opened:
            parts = replace(opened, model=gossip)
            async with run_all_workers(client, parts, settings=settings), _watched(client, seen):
                desk = Desk(client, store)
                await desk.submit(planted.request, _terms(), planted.documents)
                seen.progress = await desk.get_task_handle().result()
                async with asyncio.timeout(NOTICE_SECONDS):  # it is sent by a workflow that outlives the task
                    while not webhook.accepted_bodies:  # noqa: ASYNC110  a server tells nobody what it took
                        await asyncio.sleep(LOOK_SECONDS)
            await _in_store(parts, seen, desk.get_task_handle().id)
        await _on_server(client, settings, seen)
        seen.add("webhooks", *map(str, webhook.accepted_bodies))
        seen.add("requests to the model", *gossip.told)
    seen.add("Qdrant's payloads", *await asyncio.to_thread(lambda: list(_points(settings.memory_folder))))


def _terms() -> TaskConfig:
    """A small window, so that contexts are full again and again."""
    roomy = make_task_config(budget=1_000_000, agent_budget=300_000)
    return roomy.replace(
        default=roomy.default.replace(
            window=20_000, trigger=15_000, target=9_000, turn_limit=500, primers=1, recents=4
        ),
        agent_budget=Limit(tokens=300_000),
    )


@asynccontextmanager
async def _watched(client: Client, seen: ObservedText) -> AsyncGenerator[None]:
    """While work goes on: what the server tells of it, heartbeats and failures of attempts among it."""

    async def look() -> None:
        while True:
            async for workflow in client.list_workflows():
                described = await _described(client, workflow.id)
                await _told(client, described, "heartbeats and failures", seen)
            await asyncio.sleep(LOOK_SECONDS)

    watching = asyncio.create_task(look())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _described(client: Client, workflow_id: str) -> Message:
    wanted = DescribeWorkflowExecutionRequest(
        namespace=client.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    return await client.workflow_service.describe_workflow_execution(wanted)


async def _told(client: Client, message: Message, place: str, seen: ObservedText) -> None:
    """What stands in a message of the server's as it is, and in its payloads, decrypted."""
    seen.add(place, message.SerializeToString().decode("utf-8", "replace"))
    found: Sequence[Payload] = list(iter_payloads(message))
    codec = client.data_converter.payload_codec
    decoded = await codec.decode(found) if codec is not None else found
    seen.add(place, *(payload.data.decode("utf-8", "replace") for payload in decoded))


async def _on_server(client: Client, settings: Settings, seen: ObservedText) -> None:
    assert build_payload_codec(settings).key_id is None or settings.encrypts_payloads
    async for workflow in client.list_workflows():
        for event in (await client.get_workflow_handle(workflow.id).fetch_history()).events:
            await _told(client, event, "workflow history", seen)
        await _told(client, await _described(client, workflow.id), "workflow history", seen)
    listed = ListWorkflowExecutionsRequest(namespace=client.namespace)
    await _told(client, await client.workflow_service.list_workflow_executions(listed), "search attributes", seen)


async def _in_store(parts: ActivityDeps, seen: ObservedText, task_id: str) -> None:
    """What agents wrote and were told, and the report. Requests, documents and vault are there as handed in."""
    plan = await parts.store.get_newest_plan(task_id, SystemScope())
    assert plan is not None
    for step in ("plan", *(step.id for step in plan.steps)):
        transcript = await parts.store.load_transcript(f"{task_id}/{step}", SystemScope())
        summaries = [one for one in transcript.records if isinstance(one, SummaryRecord | SummaryPartRecord)]
        seen.add("summaries", *(one.model_dump_json() for one in summaries))
        seen.add("transcripts", *(message.model_dump_json() for message in transcript.messages))
    assert seen.progress is not None
    assert seen.progress.report is not None
    seen.add("reports", await parts.store.get_text(seen.progress.report, SystemScope()))


def _points(memory: Path) -> Iterator[str]:
    shard = qe.EdgeShard.load(str(memory / "shard"))
    try:
        offset = None
        while True:
            points, offset = shard.scroll(qe.ScrollRequest(offset=offset, limit=500, with_payload=True))
            yield from (str(point.payload) for point in points)
            if offset is None:
                return
    finally:
        shard.close()


def prove() -> None:
    """Print what was found where. Raises AssertionError where a secret or an identifier came through."""
    planted = build_planted_values(IDENTIFIERS, SEED)
    leaked = 0
    for policy, encrypted in (
        (RedactionPolicy.STANDARD, False),
        (RedactionPolicy.STANDARD, True),
        (RedactionPolicy.STRICT, False),
    ):
        with tempfile.TemporaryDirectory() as folder:
            seen = asyncio.run(run_planted_task(planted, Path(folder), encrypted=encrypted, policy=policy))
        leaked += _shown(planted, seen, f"`{policy}`, payloads {'encrypted' if encrypted else 'plain'}")
    assert leaked == 0


def _shown(planted: PlantedValues, seen: ObservedText, how: str) -> int:
    progress = seen.progress
    assert progress is not None
    made = TaskView.from_progress(progress).sum_compactions().effective_count
    rows, leaked = list[tuple[str, str, int, int, str]](), 0
    for place in sorted(seen.texts):
        found, names = seen.count_leaks(place, planted.values_by_type), seen.count_leaks(place, planted.names)
        structured = seen.count_leaks_through_sql(place, planted.structure_values)
        leaked += found.total() + structured.total()
        share = f"{names.total()} of {len(planted.names)} ({names.total() / len(planted.names):.1%})"
        rows.append((place, f"{sum(map(len, seen.texts[place])):,}", found.total(), structured.total(), share))
    types = len(set(planted.values_by_type.values()))
    generated = (
        f"{len(planted.values_by_type)} generated identifiers of {types} types, "
        f"{len(planted.structure_values)} values in {len(planted.structures)} structures"
    )
    title = f"{generated}, {made} compactions, {how}, seed {SEED}"
    print_table(title, ("place", "characters", "secrets and identifiers", "values in structures", "names"), rows)
    return leaked
