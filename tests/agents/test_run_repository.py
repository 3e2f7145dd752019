"""The contract of a transcript store: append-only, fenced, each commit once."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import (
    make_charge,
    make_intent,
    make_note,
    make_passage,
    make_question,
    make_reply,
    make_summary,
    open_run,
)
from waystation.agents.deliverables import ResearchFindings
from waystation.agents.leg import AgentFinished, LegState, TurnLimitReached
from waystation.agents.partial_replies import PartialReply
from waystation.budgets.budget import RunUsage
from waystation.context.transcript import Fence, MaskRecord, Transcript, TruncationRecord
from waystation.kernel.amount import Amount
from waystation.kernel.errors import StaleFenceError, StoreError, VersionConflict, WrongStore
from waystation.kernel.refs import RunRef
from waystation.kernel.usage import Usage
from waystation.runtime.sql_store import SqlStore

FENCED: dict[str, Callable[[SqlStore, Fence], Awaitable[object]]] = {
    "record_intent": lambda store, fence: store.record_and_count_intents(fence, make_intent("turn-9")),
    "drop_intent": lambda store, fence: store.drop_intent(fence, "turn-1"),
    "update_intent": lambda store, fence: store.update_intent(fence, "turn-1", Amount()),
    "commit_reply": lambda store, fence: store.commit_reply(fence, 2, make_reply(9), make_charge("turn-9")),
    "a repeated commit_reply": lambda store, fence: store.commit_reply(fence, 1, make_reply(1), make_charge("turn-1")),
    "commit_message": lambda store, fence: store.commit_message(fence, 2, make_question(9)),
    "commit_messages": lambda store, fence: store.commit_messages(fence, 2, [make_question(8), make_question(9)]),
    "an intent with a message": lambda store, fence: store.commit_messages(
        fence, 2, [make_question(9)], make_intent("turn-9")
    ),
    "an intent with nothing new": lambda store, fence: store.commit_messages(fence, 2, [], make_intent("turn-9")),
    "commit_charge": lambda store, fence: store.commit_charge(fence, make_charge("plan-1")),
    "record_tool_intent": lambda store, fence: store.record_tool_intent(fence, "call-1"),
    "commit_outcome": lambda store, fence: store.commit_outcome(
        fence, 1, TurnLimitReached(state=LegState(totals=RunUsage()))
    ),
    "commit_compaction": lambda store, fence: store.commit_compaction(
        fence, 2, make_summary(), [make_passage("p-1")], make_charge("summary-1")
    ),
    "add_note": lambda store, fence: store.add_note(fence, "task-1", make_note("note-1", fence.run_id)),
    "save_partial_reply": lambda store, fence: store.save_partial_reply(
        fence, "task-1", PartialReply(agent="research-1", kind="text")
    ),
    "drop_partial_reply": lambda store, fence: store.drop_partial_reply(fence),
    "submit": lambda store, fence: store.commit_deliverable(fence, "task-1", ResearchFindings(findings=())),
}


async def everything(store: SqlStore, run_id: str) -> tuple[object, ...]:
    return (
        await store.load_transcript(run_id, SYSTEM_SCOPE),
        await store.get_run_usage(run_id),
        await store.get_leg_outcome(run_id, 1, SYSTEM_SCOPE),
        (await store.load_outbox_batch(10)).pending,
        await store.list_notes("task-1", SYSTEM_SCOPE),
        await store.get_deliverable(run_id, SYSTEM_SCOPE),
    )


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED.keys())
async def test_an_attempt_that_was_taken_over_can_write_nothing(
    store: SqlStore, write: Callable[[SqlStore, Fence], Awaitable[object]]
) -> None:
    old = await open_run(store)
    await store.commit_message(old, 0, make_question(1))
    assert await store.record_and_count_intents(old, make_intent("turn-1")) == 1
    assert await store.record_and_count_intents(old, make_intent("turn-1")) == 2
    await store.commit_reply(old, 1, make_reply(1), make_charge("turn-1"))
    new = await store.acquire_fence(old.run_id)
    before = await everything(store, old.run_id)
    with pytest.raises(
        StaleFenceError, match=f"^agent run task-1/research-1: fencing token {old.number} is no longer the newest"
    ):
        await write(store, old)
    assert await everything(store, old.run_id) == before
    assert await store.record_tool_intent(new, "call-1")


@pytest.mark.parametrize("write", FENCED.values(), ids=FENCED.keys())
async def test_the_attempt_with_the_newest_fence_can_write(
    store: SqlStore, write: Callable[[SqlStore, Fence], Awaitable[object]]
) -> None:
    old = await open_run(store)
    await store.commit_message(old, 0, make_question(1))
    await store.commit_reply(old, 1, make_reply(1), make_charge("turn-1"))
    await write(store, await store.acquire_fence(old.run_id))


async def test_a_run_of_another_store_is_refused(store: SqlStore) -> None:
    run = RunRef(store_id="other", tenant="t", session="s", task_id="task-1", step_id="x", role="research")
    with pytest.raises(WrongStore, match=r"^the task is in store other, but this worker has store"):
        await store.open_run(run)


async def test_opening_a_run_again_keeps_what_it_has(store: SqlStore) -> None:
    first = await open_run(store)
    await store.commit_message(first, 0, make_question(1))
    second = await open_run(store)
    assert second.number == first.number + 1
    assert (await store.load_transcript(first.run_id, SYSTEM_SCOPE)).messages == (make_question(1),)


async def test_a_run_that_was_never_opened_has_no_fence_to_take(store: SqlStore) -> None:
    with pytest.raises(StoreError, match=r"^agent run task-1/none was never opened in this store$"):
        await store.acquire_fence("task-1/none")


async def test_an_unknown_run_loads_empty(store: SqlStore) -> None:
    assert await store.load_transcript("task-1/none", SYSTEM_SCOPE) == Transcript(run_id="task-1/none")


async def test_messages_and_records_come_back_in_the_order_of_their_commits(store: SqlStore) -> None:
    fence = await open_run(store)
    records = (
        make_summary("a"),
        MaskRecord(id="c", tool_use_ids=("call-1",)),
        TruncationRecord(id="b", covered=("reply-1",), marker=make_question(7)),
    )
    await store.commit_message(fence, 0, make_question(1))
    await store.commit_reply(fence, 1, make_reply(1), make_charge("turn-1"))
    for version, record in enumerate(records, start=2):
        await store.commit_compaction(fence, version, record, [], None)
    await store.commit_message(fence, 5, make_question(2))
    placed = tuple(record.replace(after=2) for record in records)
    assert await store.load_transcript(fence.run_id, SYSTEM_SCOPE) == Transcript(
        run_id=fence.run_id, version=6, messages=(make_question(1), make_reply(1), make_question(2)), records=placed
    )


async def test_runs_do_not_see_each_other(store: SqlStore) -> None:
    one, two = await open_run(store, "one"), await open_run(store, "two")
    for fence in (one, two):
        await store.record_and_count_intents(fence, make_intent("turn-1"))
        await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    await store.commit_message(two, 1, make_question(1))
    assert (await store.load_transcript(one.run_id, SYSTEM_SCOPE)).messages == (make_reply(1),)
    assert (await store.get_run_usage(one.run_id)).usage == make_charge("turn-1").usage


async def test_a_commit_on_an_old_version_is_refused_and_leaves_no_trace(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_message(fence, 0, make_question(1))
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    before = await everything(store, fence.run_id)
    for attempt in (
        store.commit_message(fence, 0, make_question(2)),
        store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1")),
        store.commit_compaction(fence, 0, make_summary(), [make_passage("p-1")], make_charge("summary-1")),
    ):
        with pytest.raises(VersionConflict, match=r"the transcript has version 1, expected 0$"):
            await attempt
    assert await everything(store, fence.run_id) == before


async def test_a_reply_counts_once_for_its_key_also_after_the_transcript_went_on(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    await store.commit_message(fence, 1, make_question(1))
    before = await everything(store, fence.run_id)
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    await store.commit_reply(fence, 2, make_reply(2), make_charge("turn-1", cost=99))
    assert await everything(store, fence.run_id) == before


async def test_a_message_id_is_used_once_and_a_refused_reply_costs_nothing(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    before = await everything(store, fence.run_id)
    with pytest.raises(
        StoreError, match=r"^agent run task-1/research-1 already has a message with one of these ids: reply-1$"
    ):
        await store.commit_reply(fence, 1, make_reply(1), make_charge("turn-2"))
    assert await everything(store, fence.run_id) == before


async def test_a_tool_that_must_not_be_repeated_is_announced_once(store: SqlStore) -> None:
    fence = await open_run(store)
    assert await store.record_tool_intent(fence, "call-1")
    assert not await store.record_tool_intent(await store.acquire_fence(fence.run_id), "call-1")


async def test_the_first_outcome_of_a_leg_stays(store: SqlStore) -> None:
    fence = await open_run(store)
    first = AgentFinished(state=LegState(totals=RunUsage(turns=3)), partial=True, reason="the model refused")
    assert await store.get_leg_outcome(fence.run_id, 1, SYSTEM_SCOPE) is None
    await store.commit_outcome(fence, 1, first)
    await store.commit_outcome(fence, 1, TurnLimitReached(state=LegState(totals=RunUsage())))
    await store.commit_outcome(fence, 2, TurnLimitReached(state=LegState(totals=RunUsage())))
    assert await store.get_leg_outcome(fence.run_id, 1, SYSTEM_SCOPE) == first
    assert await store.get_leg_outcome(fence.run_id, 2, SYSTEM_SCOPE) == TurnLimitReached(
        state=LegState(totals=RunUsage())
    )


async def test_messages_and_the_intent_that_sends_them_are_committed_together_or_not_at_all(store: SqlStore) -> None:
    fence = await open_run(store)
    said = [make_question(1), make_question(2)]
    assert await store.commit_messages(fence, 0, said, make_intent("turn-1")) == 1
    assert await store.commit_messages(fence, 2, [], make_intent("turn-1")) == 2  # the first one got no answer
    with pytest.raises(VersionConflict):
        await store.commit_messages(fence, 0, [make_question(3)], make_intent("turn-1"))
    with pytest.raises(StoreError, match="already has a message with one of these ids: question-1"):
        await store.commit_messages(fence, 2, [make_question(1)], make_intent("turn-1"))
    transcript = await store.load_transcript(fence.run_id, SYSTEM_SCOPE)
    assert (transcript.version, transcript.messages) == (2, tuple(said))
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 2_000


async def test_a_reply_tells_what_the_run_has_cost_by_then(store: SqlStore) -> None:
    fence = await open_run(store)
    for _ in range(2):
        await store.record_and_count_intents(fence, make_intent("turn-1"))
    told = await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    assert told == await store.get_run_usage(fence.run_id)
    assert (told.turns, told.possibly_billed) == (1, 1_000)


async def test_a_leg_is_started_once_its_run_is_there_and_not_when_it_is_over(store: SqlStore) -> None:
    run = RunRef(
        store_id=await store.get_store_id(),
        tenant="tenant",
        session="session",
        task_id="task-1",
        step_id="research-1",
        role="research",
    )
    first, second = [await store.start_leg(run, 1) for _ in range(2)]
    assert isinstance(first, Fence)
    assert isinstance(second, Fence)
    assert (first.number, second.number) == (1, 2)
    over = TurnLimitReached(state=LegState(totals=RunUsage()))
    await store.commit_outcome(second, 1, over, 0, [make_question(1)])
    assert await store.start_leg(run, 1) == over
    await store.commit_message(second, 1, make_question(2))  # its fence still holds
    transcript = await store.load_transcript(run.run_id, SYSTEM_SCOPE)
    assert transcript.messages == (make_question(1), make_question(2))
    with pytest.raises(WrongStore):
        await store.start_leg(run.replace(store_id="another"), 2)


async def test_a_run_is_opened_and_taken_over_at_once_with_the_version_that_its_transcript_has(store: SqlStore) -> None:
    run = RunRef(
        store_id=await store.get_store_id(),
        tenant="tenant",
        session="session",
        task_id="task-1",
        step_id="research-1",
        role="research",
    )
    first, version = await store.take_over(run)
    assert version == 0
    await store.commit_message(first, version, make_question(1))
    second, version = await store.take_over(run)
    assert (second.number, version) == (first.number + 1, 1)
    with pytest.raises(StaleFenceError):
        await store.commit_message(first, version, make_question(2))
    with pytest.raises(WrongStore):
        await store.take_over(run.replace(store_id="another"))


async def test_a_compaction_brings_record_passages_and_charge_and_happens_once(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.record_and_count_intents(fence, make_intent("summary-1"))
    for version in (0, 0, 1):
        await store.commit_compaction(
            fence, version, make_summary(), [make_passage("p-1"), make_passage("p-2")], make_charge("summary-1")
        )
    assert await store.load_transcript(fence.run_id, SYSTEM_SCOPE) == Transcript(
        run_id=fence.run_id, version=1, records=(make_summary(after=0),)
    )
    assert (await store.load_outbox_batch(10)).pending == (make_passage("p-1"), make_passage("p-2"))
    totals = await store.get_run_usage(fence.run_id)
    assert (totals.usage, totals.possibly_billed, totals.turns) == (make_charge("summary-1").usage, 0, 0)


async def test_nothing_spent_costs_nothing(store: SqlStore) -> None:
    fence = await open_run(store)
    assert await store.get_run_usage(fence.run_id) == RunUsage(cost_micro_usd=0)


async def test_totals_add_up_every_charge_and_know_the_newest_prompt(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1", usage=Usage(input=100, output=1)))
    await store.commit_reply(
        fence, 1, make_reply(2), make_charge("turn-2", usage=Usage(input=1, cache_read=90, cache_write=9))
    )
    await store.commit_charge(fence, make_charge("summary-1", usage=Usage(input=5_000, output=3)))
    assert await store.get_run_usage(fence.run_id) == RunUsage(
        usage=Usage(input=5_101, cache_write=9, cache_read=90, output=4),
        turns=2,
        last_prompt_tokens=100,
        cost_micro_usd=21,
    )


async def test_a_charge_without_a_price_makes_the_whole_cost_unknown(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.commit_charge(fence, make_charge("summary-1"))
    await store.commit_charge(fence, make_charge("summary-2", cost=None))
    assert (await store.get_run_usage(fence.run_id)).cost_micro_usd is None


async def test_intents_of_repeated_attempts_add_up_and_a_charge_closes_the_newest(store: SqlStore) -> None:
    fence = await open_run(store)
    for worst_case in (1_000, 2_000, 4_000):
        await store.record_and_count_intents(fence, make_intent("turn-1", worst_case))
    await store.record_and_count_intents(fence, make_intent("turn-2", 8_000))
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 15_000
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 11_000
    await store.commit_charge(fence, make_charge("turn-1"))
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 11_000


async def test_a_call_that_was_not_billed_takes_the_newest_intent_back(store: SqlStore) -> None:
    fence = await open_run(store)
    await store.record_and_count_intents(fence, make_intent("turn-1", 1_000))
    await store.record_and_count_intents(fence, make_intent("turn-1", 2_000))
    await store.drop_intent(fence, "turn-1")
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 1_000
    await store.drop_intent(fence, "turn-1")
    await store.drop_intent(fence, "turn-1")
    assert (await store.get_run_usage(fence.run_id)).possibly_billed == 0


async def test_a_call_that_broke_off_holds_what_was_reported_of_it_and_no_other_call_of_its_key_does(
    store: SqlStore,
) -> None:
    fence = await open_run(store)
    await store.record_and_count_intents(fence, make_intent("turn-1", 1_000))
    await store.record_and_count_intents(fence, make_intent("turn-1", 2_000))
    await store.record_and_count_intents(fence, make_intent("turn-2", 4_000))
    await store.update_intent(fence, "turn-1", Amount(tokens=300, micro_usd=5))
    totals = await store.get_run_usage(fence.run_id)
    others = 2 * make_intent("turn-1").worst_case.micro_usd
    assert (totals.possibly_billed, totals.possibly_billed_micro_usd) == (5_300, others + 5)


async def test_what_agents_spent_leaves_out_a_call_that_may_still_be_answered_and_never_falls(
    store: SqlStore,
) -> None:
    fence = await open_run(store)
    each = make_charge("turn-1").usage.fresh

    async def spent() -> int:
        found = await store.get_usage_by_agent("task-1")
        assert list(found) == ["research-1"]
        return found["research-1"].spent.tokens

    seen = [await spent()]
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    seen.append(await spent())
    await store.record_and_count_intents(fence, make_intent("turn-1"))  # the worker crashed, and another asks again
    seen.append(await spent())
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    seen.append(await spent())
    await store.record_and_count_intents(fence, make_intent("turn-2"))
    seen.append(await spent())
    assert seen == [0, 0, 1_000, 1_000 + each, 1_000 + each]
    assert (await store.get_run_usage(fence.run_id)).spent.tokens == 2_000 + each
    assert await store.get_usage_by_agent("task-2") == {}
