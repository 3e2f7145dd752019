"""Payload encryption on a real server: what it can read of us, and what happens where a key is missing."""

import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest
from google.protobuf.message import Message
from pydantic import SecretStr
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import (
    DescribeWorkflowExecutionRequest,
    DescribeWorkflowExecutionResponse,
    ListWorkflowExecutionsRequest,
)
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import Replayer, Worker

from tests.replay.test_replay import RECORDED, RELEASES, load_history
from tests.support.history_payloads import iter_payloads, iter_search_attributes
from tests.support.task_model import QUOTED_SENTENCE, ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import (
    KEY,
    SESSION,
    TENANT,
    StrictWorkerPlugin,
    TaskSubmitter,
    make_task_request,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.workflow_history import fetch_events
from waystation.budgets.budget import BudgetAccount
from waystation.config.settings import Settings
from waystation.kernel import temporal_names as names
from waystation.kernel.errors import WrongKey
from waystation.privacy.ports import Redactor
from waystation.runtime.store_setup import build_client_data_converter, build_payload_codec
from waystation.runtime.temporal.codec import ENCODING, ENCRYPTED
from waystation.tasks import approvals
from waystation.tasks.session import SessionWorkflowInput
from waystation.tasks.task import TaskPhase, session_hash
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

QUESTION = "Why does Klabauter guard the bar?"
NOTE = "Ask the widow Petersen before you sail."
BURST = "the boiler said: keep the white beacon to starboard"
PRIVATE = (
    QUESTION,
    NOTE,
    BURST,
    QUOTED_SENTENCE,
    "Klabauter",
    "white beacon",
    "two fathoms",
    "Petersen",
    "harbours: leg",
)
PATCH = re.compile(rb'{"id":"[a-z-]+","deprecated":(?:true|false)}')
"""What the SDK itself records of a patch, past every codec."""
WITH_KEY = Settings(key=SecretStr(KEY.hex()))
OTHER_KEY = Settings(key=SecretStr(bytes(32).hex()))
ROTATED = Settings(key=SecretStr(bytes(32).hex()), previous_keys=SecretStr(KEY.hex()))
LONG_IS = "limit.historyCount.suggestContinueAsNew=40"


async def make_client_with_keys(server: Client, settings: Settings) -> Client:
    """A client of that server that has the settings' keys."""
    return await Client.connect(
        server.service_client.config.target_host,
        data_converter=build_client_data_converter(settings),
        plugins=[StrictWorkerPlugin(cached=False)],
    )


@dataclass
class Bursts:
    """An agent fails in a way that nobody foresaw, with words of the work in its message, until the server has it.

    What a server tells of an attempt that failed is there while the next one runs, and then only of the last one.
    """

    server: Client
    task: str = ""
    told: list[Message] = field(default_factory=list[Message])

    async def __call__(self, call: ModelCall) -> None:
        if call != ModelCall("harbours", 2) or self.told:
            return
        described = await described_by(self.server, self.task)
        self.told = [
            one.last_failure for one in described.pending_activities if one.last_failure.encoded_attributes.data
        ]
        if not self.told:
            raise RuntimeError(BURST)


async def approved_until_over(counter: TaskSubmitter) -> bool:
    """Approve what is asked for, with a note; whether the task is over."""
    progress = await counter.get_task_handle().query(TaskWorkflow.progress)
    for approval in progress.approvals:
        if approval.decision == "pending":
            answer = {"request_id": approval.request_id, "by": "Ada", "note": NOTE}
            await counter.get_task_handle().signal(approvals.APPROVE_BUDGET, answer)
    return progress.phase.over


async def described_by(server: Client, workflow_id: str) -> DescribeWorkflowExecutionResponse:
    """All that the server says of a workflow as it is now."""
    asked = DescribeWorkflowExecutionRequest(
        namespace=server.namespace, execution=WorkflowExecution(workflow_id=workflow_id)
    )
    return await server.workflow_service.describe_workflow_execution(asked)


async def seen_by(server: Client, *workflow_ids: str) -> list[Message]:
    """All that the server tells of these workflows: their events, how it describes them, how it lists them."""
    told: list[Message] = []
    for workflow_id in workflow_ids:
        told += [*await fetch_events(server.get_workflow_handle(workflow_id)), await described_by(server, workflow_id)]
    listed = ListWorkflowExecutionsRequest(namespace=server.namespace)
    return [*told, await server.workflow_service.list_workflow_executions(listed)]


# ------------------------------------------------------------------------------------------------------ a whole task


async def test_a_server_reads_nothing_of_a_whole_task(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    encrypted = await make_client_with_keys(server, WITH_KEY)
    bursts = Bursts(server)
    async with run_platform(encrypted, tmp_path, redactor, ScriptedTaskModel(before=bursts)) as counter:
        bursts.task = counter.get_task_handle().id
        await counter.submit(make_task_request(question=QUESTION), make_tight_budget_config())
        await wait_until(lambda: approved_until_over(counter))
        progress = await counter.get_task_handle().result()
        told = [*bursts.told, *await seen_by(server, counter.get_task_handle().id, counter.session.id)]
    assert progress.phase is TaskPhase.DONE
    raw = b"\n".join(one.SerializeToString() for one in told)
    assert [text for text in PRIVATE if text.encode() in raw] == []
    found = [payload for one in told for payload in iter_payloads(one)]
    plain = [payload.data for payload in found if payload.metadata[ENCODING] != ENCRYPTED]
    assert [data for data in plain if not PATCH.fullmatch(data)] == []
    # It is all there for who has the key, so that the search above looked at the right places.
    decrypted = b"\n".join(payload.data for payload in await build_payload_codec(WITH_KEY).decode(found))
    there = (QUESTION, NOTE, "RuntimeError: its message is not shown, because it may quote text", "harbours: leg")
    assert [text for text in there if text.encode() not in decrypted] == []
    assert BURST.encode() not in decrypted


async def test_search_attributes_hold_hashes_numbers_and_phases(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    encrypted = await make_client_with_keys(server, WITH_KEY)
    async with run_platform(encrypted, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(make_task_request(question=QUESTION))
        await counter.get_task_handle().result()
        told = await seen_by(server, counter.get_task_handle().id, counter.session.id)
    found = {(name, value) for one in told for name, value in iter_search_attributes(one)}
    words = {value.decode() for name, value in found if name in {names.SESSION_ATTRIBUTE, names.PHASE_ATTRIBUTE}}
    assert f'"{session_hash(TENANT, SESSION)}"' in words
    assert words - {f'"{session_hash(TENANT, SESSION)}"'} <= {f'"{phase}"' for phase in TaskPhase}
    rest = {name: value for name, value in found if name in {names.TOKENS_ATTRIBUTE, names.PENDING_ATTRIBUTE}}
    assert all(value.isdigit() for value in rest.values())


# ------------------------------------------------------------------------------------------------- keys that are wrong


def session_of(client: Client) -> WorkflowHandle[SessionWorkflow, None]:
    return client.get_workflow_handle_for(SessionWorkflow.run, "session")


async def limit_is(client: Client, tokens: int) -> bool:
    account: BudgetAccount = await session_of(client).query(SessionWorkflow.account)
    return account.limit.tokens == tokens


def serving(client: Client) -> Worker:
    """A worker for sessions."""
    return Worker(
        client, task_queue=names.WORKFLOWS_QUEUE, workflows=[SessionWorkflow], workflow_runner=create_sandboxed_runner()
    )


async def limit(client: Client, tokens: int) -> None:
    """Set the session's limit, and start it where it does not run, as if it continued one: nothing is read first."""
    start = SessionWorkflowInput(store_id="store", tenant="tenant", session="session", epoch=1)
    await client.start_workflow(
        SessionWorkflow.run,
        start,
        id="session",
        task_queue=names.WORKFLOWS_QUEUE,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        # So long the server waits for a worker that was stopped with a workflow task in its hands.
        task_timeout=timedelta(seconds=1),
        start_signal=names.SET_SESSION_LIMIT,
        start_signal_args=[{"tokens": tokens}],
    )


async def failures(client: Client) -> list[str]:
    """What failed workflow tasks of the session say to whoever has no key."""
    said = await fetch_events(session_of(client))
    return [
        event.workflow_task_failed_event_attributes.failure.message
        for event in said
        if event.HasField("workflow_task_failed_event_attributes")
    ]


@pytest.mark.parametrize(
    ("settings", "there"),
    [
        (OTHER_KEY, "the keys on this machine are"),
        (Settings(encrypt_payloads=False), "there is no key on this machine"),
    ],
)
async def test_a_worker_without_the_key_says_so_and_the_work_goes_on_when_one_has_it(
    server: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: Settings, there: str
) -> None:
    right = await make_client_with_keys(server, WITH_KEY)
    wrong = await make_client_with_keys(server, settings.replace(home=tmp_path))
    await limit(right, 70_000)

    async def told() -> bool:
        return bool(await failures(server))

    async with serving(wrong):
        await wait_until(told)
    (said, *_) = await failures(server)
    own = build_payload_codec(WITH_KEY).key_id
    assert said.startswith(f"a payload in Temporal is encrypted with key '{own}', and {there}")
    assert "set WAYSTATION_KEY to the key of the payload" in said
    assert said in caplog.text
    async with serving(right):
        assert await limit_is(right, 70_000)


async def test_a_client_without_the_key_is_told_so_by_what_it_asks(server: Client) -> None:
    right, wrong = await make_client_with_keys(server, WITH_KEY), await make_client_with_keys(server, OTHER_KEY)
    await limit(right, 70_000)
    async with serving(right):
        with pytest.raises(WrongKey, match="set WAYSTATION_KEY to the key of the payload"):
            await session_of(wrong).query(SessionWorkflow.account)


# ------------------------------------------------------------------------------------------------------ old and new


async def test_plain_histories_and_signals_by_hand_go_together_with_encryption_over_many_runs() -> None:
    async with start_dev_server(LONG_IS) as server:
        await limit(server, 60_000)
        async with serving(server):
            assert await limit_is(server, 60_000)
        right = await make_client_with_keys(server, WITH_KEY)
        first = (await session_of(server).describe()).run_id

        async def continued() -> bool:
            await session_of(right).signal(names.SET_SESSION_LIMIT, {"tokens": 70_000})
            await session_of(server).signal(names.SET_SESSION_LIMIT, {"tokens": 80_000})
            return (await session_of(server).describe()).run_id != first

        async with serving(right):
            assert await limit_is(right, 60_000)
            await wait_until(continued)
            assert await limit_is(right, 80_000)
        (started, *_) = await fetch_events(session_of(server))
    assert {payload.metadata[ENCODING] for payload in iter_payloads(started)} == {ENCRYPTED}


async def test_after_a_rotation_a_worker_goes_on_with_what_the_old_key_encrypted(server: Client) -> None:
    before, after = await make_client_with_keys(server, WITH_KEY), await make_client_with_keys(server, ROTATED)
    await limit(before, 70_000)
    async with serving(before):
        assert await limit_is(before, 70_000)
    async with serving(after):
        assert await limit_is(after, 70_000)
        await limit(after, 80_000)
        assert await limit_is(after, 80_000)
        with pytest.raises(WrongKey):
            await limit_is(before, 80_000)


@pytest.mark.parametrize("name", RELEASES)
async def test_plain_histories_of_every_release_replay_with_encryption(name: str) -> None:
    replayer = Replayer(
        workflows=RECORDED,
        data_converter=build_client_data_converter(WITH_KEY),
        workflow_runner=create_sandboxed_runner(),
    )
    await replayer.replay_workflow(load_history(name))


async def test_an_encrypted_history_replays_with_its_key_alone(server: Client) -> None:
    right = await make_client_with_keys(server, WITH_KEY)
    await limit(right, 70_000)
    async with serving(right):
        assert await limit_is(right, 70_000)
    history = await session_of(server).fetch_history()

    async def replay(settings: Settings) -> None:
        converter = build_client_data_converter(settings)
        # Payloads are bound to the namespace, too, and a replayer's own is called otherwise.
        await Replayer(
            workflows=[SessionWorkflow],
            namespace=server.namespace,
            data_converter=converter,
            workflow_runner=create_sandboxed_runner(),
        ).replay_workflow(history)

    await replay(WITH_KEY)
    with pytest.raises(RuntimeError, match="set WAYSTATION_KEY"):
        await replay(OTHER_KEY)
