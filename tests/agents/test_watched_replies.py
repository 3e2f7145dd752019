"""What a model is thinking or writing is shown while someone watches: whole paragraphs, redacted, until the reply is
committed.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from tests.agents.test_turn_transactions import counted
from tests.support.agent_environment import (
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    AgentEnvironment,
    ManualClock,
    make_tool_use,
)
from waystation.agents.leg import AgentFinished
from waystation.agents.partial_replies import (
    MAX_REDACTED_CHARACTERS,
    SHOWN_CHARACTERS,
    PartialReply,
    ReplyBuffer,
    shorten_to_end,
)
from waystation.agents.partial_reply_publisher import PUBLISH_SECONDS, UNWATCHED_SECONDS, PartialReplyPublisher
from waystation.agents.run_tables import RUN_TABLES
from waystation.context.transcript import Text
from waystation.kernel.amount import Amount
from waystation.kernel.errors import ModelUnavailable, StaleFenceError
from waystation.models.ports import ModelRequest, ModelResponse, ReplyDelta, ReplyObserver
from waystation.privacy.policy import RedactionResult, TextDestination
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import partial_replies
from waystation.tasks.task import BudgetProgress, TaskPhase, TaskProgress
from waystation.testing.doubles import PlainRedactor, ScriptedModel, make_scripted_response

LATER = datetime(2200, 1, 1, tzinfo=UTC)
AGENT = "research-1"


@pytest.fixture
async def env(store: SqlStore) -> AgentEnvironment:
    """On either database."""
    opened = AgentEnvironment(store=store, clock=ManualClock(), store_id=await store.get_store_id())
    await opened.open_task()
    return opened


class StepwiseSleep:
    """Each pause ends when the test says so. `pauses` has their seconds."""

    def __init__(self) -> None:
        self.pauses: list[float] = []
        self._steps = asyncio.Semaphore(0)
        self._began = asyncio.Semaphore(0)

    async def __call__(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._began.release()
        await self._steps.acquire()

    async def begin(self) -> None:
        """Wait until the first pause begins."""
        await self._began.acquire()

    def end(self) -> None:
        """End a pause."""
        self._steps.release()

    async def step(self) -> None:
        """End a pause, and wait until the next one begins."""
        self.end()
        await self._began.acquire()


async def make_publisher(env: AgentEnvironment, sleep: StepwiseSleep) -> PartialReplyPublisher:
    run = env.run_ref(AGENT)
    await env.store.open_run(run)
    fence = await env.store.acquire_fence(run.run_id)
    return PartialReplyPublisher(env.store, env.redactor, run, fence, env.clock, sleep)


async def shown(env: AgentEnvironment) -> list[PartialReply]:
    return [*await env.store.list_partial_replies(TASK, env.ref.scope)]


def say(buffer: ReplyObserver, *words: str, kind: str = "text") -> None:
    for word in words:
        buffer.receive_delta(ReplyDelta("thinking" if kind == "thinking" else "text", word))


def test_a_paragraph_is_held_back_until_it_is_complete() -> None:
    buffer = ReplyBuffer()
    say(buffer, "The harbour", " was dug in 1811.\n")
    assert buffer.whole_paragraphs == ""
    say(buffer, "\nIt silted")
    assert buffer.whole_paragraphs == "The harbour was dug in 1811."
    buffer.receive_delta(ReplyDelta("tool_call"))
    assert buffer.whole_paragraphs == "The harbour was dug in 1811.\n\nIt silted", "a block before a call is complete"


def test_another_block_takes_the_place_of_the_one_before() -> None:
    buffer = ReplyBuffer()
    say(buffer, "Which depth?\n\n", kind="thinking")
    say(buffer, "I look.\n\n")
    assert (buffer.kind, buffer.whole_paragraphs) == ("text", "I look.")
    buffer.receive_delta(ReplyDelta("tool_call"))
    say(buffer, "And again.\n\n")
    assert (buffer.kind, buffer.whole_paragraphs, buffer.calls_tool) == ("text", "And again.", False)
    buffer.begin_reply()
    assert (buffer.kind, buffer.whole_paragraphs) == (None, "")


def test_only_the_end_of_a_long_text_is_redacted_from_the_beginning_of_a_paragraph() -> None:
    buffer = ReplyBuffer()
    paragraph = "word " * 999 + "end"
    for number in range(6):
        say(buffer, f"{number} {paragraph}\n\n")
    assert len(buffer.whole_paragraphs) <= MAX_REDACTED_CHARACTERS
    assert buffer.whole_paragraphs.startswith(("2 word", "3 word"))
    buffer.begin_reply()
    say(buffer, "x" * (MAX_REDACTED_CHARACTERS + 1), "\n\n")
    assert buffer.whole_paragraphs == "", "the beginning of the paragraph is too far away"


def test_a_shown_text_begins_with_a_whole_word() -> None:
    text = f"{SECRET_PLACEHOLDER} " * 100
    words = shorten_to_end(text).split()
    assert (words[0], {*words[1:]}) == ("…", {SECRET_PLACEHOLDER})
    assert len(shorten_to_end(text)) <= SHOWN_CHARACTERS + 2
    assert shorten_to_end("x" * (SHOWN_CHARACTERS + 1)) == "…"


async def test_a_key_that_is_split_between_two_deltas_is_never_shown(env: AgentEnvironment) -> None:
    """Each time that something is written, and in what is stored."""
    sleep, seen = StepwiseSleep(), list[str]()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    async with publisher.publishing() as buffer:
        await sleep.begin()
        for piece in ("Her key is ", SECRET[:5], SECRET[5:], ".\n", "\nIt opens", " the door.\n\n"):
            say(buffer, piece)
            await sleep.step()
            seen += [one.text for one in await shown(env)]
    assert seen[0] == "", "the agent is writing, but no paragraph is complete"
    assert seen[-1] == f"Her key is {SECRET_PLACEHOLDER}.\n\nIt opens the door."
    assert [text for text in seen if SECRET[:5] in text or SECRET[5:] in text] == []


async def test_while_no_one_watches_nothing_is_written_and_the_store_is_asked_every_few_seconds(
    env: AgentEnvironment,
) -> None:
    sleep = StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    env.redactor.tenants.clear()
    with counted(env.store) as transactions:
        async with publisher.publishing() as buffer:
            await sleep.begin()
            await sleep.step()
            assert transactions.reads == 0, "nothing has arrived"
            for number in range(4):
                say(buffer, f"Paragraph {number}.\n\n")
                await sleep.step()
    assert (transactions.reads, transactions.writes) == (4, 0)
    assert sleep.pauses == [PUBLISH_SECONDS] * 2 + [UNWATCHED_SECONDS] * 4
    assert env.redactor.tenants == set(), "nothing is redacted either"


class SlowRedactor(PlainRedactor):
    """Each redaction takes two seconds on the clock of the test."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__({})
        self._clock = clock

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        self._clock.advance(timedelta(seconds=2))
        return await super().redact(texts, destination, tenant)


async def test_the_pause_after_slow_work_is_long(env: AgentEnvironment) -> None:
    env.redactor, sleep = SlowRedactor(env.clock), StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    async with publisher.publishing() as buffer:
        await sleep.begin()
        say(buffer, "A paragraph.\n\n")
        await sleep.step()
    assert sleep.pauses == [PUBLISH_SECONDS, 20.0]


async def test_while_someone_watches_each_change_is_one_write(env: AgentEnvironment) -> None:
    sleep = StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    with counted(env.store) as transactions:
        async with publisher.publishing() as buffer:
            await sleep.begin()
            for number in range(3):
                say(buffer, f"Paragraph {number}.\n\n", "And")
                await sleep.step()
                await sleep.step()
    assert (transactions.reads, transactions.writes) == (1, 3)
    assert {*sleep.pauses} == {PUBLISH_SECONDS}
    (one,) = await shown(env)
    assert one == PartialReply(agent=AGENT, kind="text", text="Paragraph 0.\n\nAndParagraph 1.\n\nAndParagraph 2.")


async def test_a_watch_that_has_expired_deletes_what_was_stored(env: AgentEnvironment) -> None:
    sleep = StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    await env.store.save_partial_reply(publisher.fence, TASK, PartialReply(agent=AGENT, kind="text", text="Old."))
    await expire_watch(env)
    assert not await env.store.is_watched(TASK, env.ref.scope)
    assert not await env.store.save_partial_reply(publisher.fence, TASK, PartialReply(agent=AGENT, kind="text"))
    assert await shown(env) == []


async def expire_watch(env: AgentEnvironment) -> None:
    async with env.store.database.write() as connection:
        await connection.exec_driver_sql("DELETE FROM task_watches")
    await env.store.watch_task(TASK, datetime(2000, 1, 1, tzinfo=UTC), env.ref.scope)


@pytest.mark.parametrize("broken", ["redactor", "text", "store"])
async def test_what_cannot_be_redacted_or_stored_is_not_shown_and_disturbs_no_call(
    env: AgentEnvironment, broken: str
) -> None:
    sleep = StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    env.redactor.failing = broken == "redactor"
    env.redactor.failing_at = frozenset({TextDestination.MODEL_OUTPUT}) if broken == "text" else frozenset()
    if broken == "store":
        await env.store.acquire_fence(publisher.run.run_id)
    publishing = asyncio.create_task(publisher.publish())
    await sleep.begin()
    say(publisher.buffer, "A paragraph.\n\n")
    sleep.end()
    await publishing
    assert await shown(env) == []


async def test_a_failed_call_leaves_nothing(env: AgentEnvironment) -> None:
    sleep = StepwiseSleep()
    publisher = await make_publisher(env, sleep)
    await env.store.watch_task(TASK, LATER, env.ref.scope)

    async def call() -> None:
        async with publisher.publishing() as buffer:
            await sleep.begin()
            say(buffer, "A paragraph.\n\n")
            await sleep.step()
            assert len(await shown(env)) == 1
            raise ModelUnavailable("cut off")

    with pytest.raises(ModelUnavailable):
        await call()
    assert await shown(env) == []


async def test_who_takes_the_run_over_deletes_what_the_attempt_before_was_writing(env: AgentEnvironment) -> None:
    publisher = await make_publisher(env, StepwiseSleep())
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    written = PartialReply(agent=AGENT, kind="thinking", text="Hm.")
    assert await env.store.save_partial_reply(publisher.fence, TASK, written)
    await env.store.start_leg(publisher.run, 1)
    assert await shown(env) == []
    with pytest.raises(StaleFenceError):
        await env.store.save_partial_reply(publisher.fence, TASK, written)


async def test_the_end_of_the_task_deletes_what_is_stored_for_who_watches_it(env: AgentEnvironment) -> None:
    publisher = await make_publisher(env, StepwiseSleep())
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    await env.store.save_partial_reply(publisher.fence, TASK, PartialReply(agent=AGENT, kind="text", text="Hm."))
    nothing = BudgetProgress(limit=env.limit, spent=Amount(), reserved=Amount())
    over = TaskProgress(task_id=TASK, phase=TaskPhase.CANCELLED, title="", model="m", budget=nothing)
    await env.store.save_task_progress(TASK, over)
    assert await shown(env) == []
    assert not await env.store.is_watched(TASK, env.ref.scope)


async def test_a_task_of_someone_else_cannot_be_watched(env: AgentEnvironment) -> None:
    stranger = env.ref.scope.replace(tenant="another")
    await env.store.watch_task(TASK, LATER, stranger)
    assert not await env.store.is_watched(TASK, env.ref.scope)


class HesitantModel(ScriptedModel):
    """Shows a paragraph, and finishes its reply when the test has seen it."""

    def __init__(self, script: list[ModelResponse], seen: Callable[[], "asyncio.Future[None]"]) -> None:
        super().__init__(script)
        self._seen = seen

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        observer.begin_reply()
        say(observer, f"Her key is {SECRET}.\n\n", "And")
        await self._seen()
        return await self.complete(request)


async def test_a_watched_leg_shows_what_it_writes_until_the_reply_is_committed(env: AgentEnvironment) -> None:
    found: list[PartialReply] = []

    async def look() -> None:
        while not found:
            await asyncio.sleep(0.05)
            found.extend(await shown(env))

    submit = make_scripted_response(Text(text="Done."), make_tool_use("submit_findings", "c1", findings=[]))
    await env.store.watch_task(TASK, LATER, env.ref.scope)
    outcome = await env.run_leg(HesitantModel([submit], lambda: asyncio.ensure_future(look())))
    assert isinstance(outcome, AgentFinished)
    assert [one.text for one in found] == [f"Her key is {SECRET_PLACEHOLDER}."]
    assert await shown(env) == []


def test_partial_replies_are_forgotten_and_searched_with_the_transcript() -> None:
    (row,) = [stored for stored in RUN_TABLES if stored.table is partial_replies]
    assert (row.forget, row.fork, len(row.texts)) == ("deleted", "left", 1)
