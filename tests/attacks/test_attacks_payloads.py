"""Whoever can write to the Temporal server, and has no key, cannot pass one workflow's payload off as another's."""

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import ActivitySerializationContext, SerializationContext, WorkflowSerializationContext

from waystation.kernel.errors import WrongKey
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.temporal.codec import ENCODING, WORKFLOW, EncryptionCodec

KEY = AesGcmCipher(bytes(range(32)), "payloads")
CODEC = EncryptionCodec({KEY.key_id: KEY}, KEY.key_id)
PLAIN = Payload(metadata={ENCODING: b"json/plain"}, data=b'{"tokens": 5}')


def of(workflow_id: str, namespace: str = "default") -> SerializationContext:
    return WorkflowSerializationContext(namespace=namespace, workflow_id=workflow_id)


async def test_a_payload_opens_for_its_workflow_and_for_a_codec_server_that_knows_none() -> None:
    (sealed,) = await CODEC.with_context(of("task-1")).encode([PLAIN])
    assert await CODEC.with_context(of("task-1")).decode([sealed]) == [PLAIN]
    assert await CODEC.decode([sealed]) == [PLAIN]


@pytest.mark.parametrize("other", [of("task-2"), of("task-1", "other"), of("default/task-1", "")])
async def test_a_payload_of_another_workflow_is_refused(other: SerializationContext) -> None:
    (sealed,) = await CODEC.with_context(of("task-1")).encode([PLAIN])
    with pytest.raises(WrongKey, match="for another workflow"):
        await CODEC.with_context(other).decode([sealed])


@pytest.mark.parametrize("whose", [b"default\x00task-2", None])
async def test_a_payload_that_says_it_were_of_another_one_or_of_none_does_not_open(whose: bytes | None) -> None:
    (sealed,) = await CODEC.with_context(of("task-1")).encode([PLAIN])
    moved = Payload.FromString(sealed.SerializeToString())
    if whose is None:
        del moved.metadata[WORKFLOW]
    else:
        moved.metadata[WORKFLOW] = whose
    for codec in (CODEC, CODEC.with_context(of("task-2"))):
        with pytest.raises(WrongKey):
            await codec.decode([moved])


async def test_what_an_activity_gets_is_bound_to_the_workflow_that_asks_for_it() -> None:
    within = ActivitySerializationContext(
        namespace="default",
        workflow_id="task-1",
        workflow_type="Task",
        activity_id="1",
        activity_type="PlanTask",
        activity_task_queue="agents",
        is_local=False,
    )
    (sealed,) = await CODEC.with_context(within).encode([PLAIN])
    assert sealed.metadata[WORKFLOW] == b"default\x00task-1"
    with pytest.raises(WrongKey):
        await CODEC.with_context(of("task-2")).decode([sealed])


WEEKLY = "schedule-0123456789abcdef-weekly"


async def test_runs_of_a_schedule_open_what_was_sealed_for_it_and_no_other_workflow_does() -> None:
    runs = [f"{WEEKLY}-2026-11-{day}T07:00:00Z" for day in (16, 23)]
    for sealed_for in (WEEKLY, *runs):
        (sealed,) = await CODEC.with_context(of(sealed_for)).encode([PLAIN])
        for opened_in in (WEEKLY, *runs):
            assert await CODEC.with_context(of(opened_in)).decode([sealed]) == [PLAIN]
        monthly = WEEKLY.replace("weekly", "monthly")
        others = (f"{WEEKLY}-2-2026-11-16T07:00:00Z", f"{monthly}-2026-11-16T07:00:00Z", "task-1")
        for other in others:
            with pytest.raises(WrongKey):
                await CODEC.with_context(of(other)).decode([sealed])
