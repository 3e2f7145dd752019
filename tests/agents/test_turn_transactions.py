"""What a turn asks of the store: two writes and one read beside what its tool reads."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from sqlalchemy import Connection, event

from tests.support.agent_environment import (
    AGENT_CONFIG,
    AgentEnvironment,
    ManualClock,
    make_tool_use,
    never_interrupted,
)
from tests.support.full_context import estimate_request_size, make_summary_response
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.leg import AgentFinished, LegRequest, TurnLimitReached
from waystation.context.compaction import CompactionStatus
from waystation.memory.indexing import EMBEDDING_BATCH
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import ScriptedModel, make_scripted_response

RUN_ID = "task-1/research-1"
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c99", findings=[]))
TURNS = 6
MAX_TRANSACTIONS = 8


def read_document(number: int) -> ModelResponse:
    return make_scripted_response(make_tool_use("read_document", f"c{number}", name="harbour.md"))


def search_documents(number: int) -> ModelResponse:
    return make_scripted_response(make_tool_use("search_documents", f"c{number}", query="harbour"))


@dataclass
class Transactions:
    """Of one database, as it sees them."""

    statements: list[list[str]] = field(default_factory=list[list[str]])
    """Of each transaction, by their first words."""

    @property
    def writes(self) -> int:
        return sum(not {"INSERT", "UPDATE", "DELETE", "WITH"}.isdisjoint(words) for words in self.statements)

    @property
    def reads(self) -> int:
        return len(self.statements) - self.writes


@contextmanager
def counted(store: SqlStore) -> Generator[Transactions]:
    """Each transaction that begins in the block."""
    found = Transactions()
    engine = store.database.engine.sync_engine

    def begun(_: Connection) -> None:
        found.statements.append([])

    def executed(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith("BEGIN"):
            found.statements[-1].append(statement.split(maxsplit=1)[0])

    event.listen(engine, "begin", begun, insert=True)
    event.listen(engine, "after_cursor_execute", executed)
    try:
        yield found
    finally:
        event.remove(engine, "begin", begun)
        event.remove(engine, "after_cursor_execute", executed)


class CountingModel(ScriptedModel):
    """Remembers how many reads and writes there were before each of its calls, and at the end."""

    def __init__(self, script: list[ModelResponse], transactions: Transactions) -> None:
        super().__init__(script)
        self.marks: list[tuple[int, int]] = []
        self._transactions = transactions

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.mark()
        return await super().complete(request)

    def mark(self) -> None:
        self.marks.append((self._transactions.reads, self._transactions.writes))


@pytest.fixture
async def env(store: SqlStore) -> AgentEnvironment:
    """On either database."""
    opened = AgentEnvironment(store=store, clock=ManualClock(), store_id=await store.get_store_id())
    await opened.open_task()
    return opened


async def run_agent(env: AgentEnvironment, replies: list[ModelResponse], turn_limit: int) -> list[tuple[int, int]]:
    """All legs of an agent with these replies; the reads and writes before each call, and at the end."""
    env.terms = AGENT_CONFIG.replace(window=200_000, trigger=150_000, turn_limit=turn_limit)
    with counted(env.store) as transactions:
        model = env.model = CountingModel(replies, transactions)
        for leg in range(1, len(replies) + 1):
            request = LegRequest(run=env.run_ref(), leg=leg, limit=env.limit, config=env.terms)
            if not isinstance(await env.agent_loop.run(request, never_interrupted), TurnLimitReached):
                break
        model.mark()
    return model.marks


@pytest.mark.parametrize(("reply", "of_the_tool"), [(read_document, 1), (search_documents, 0)])
async def test_a_turn_is_two_commits_and_one_read_beside_that_of_its_tool(
    env: AgentEnvironment, reply: Callable[[int], ModelResponse], of_the_tool: int
) -> None:
    """The first commit has the results of the turn before, what the agent was told since, and the intent of the call
    with its worst case; the second the reply and its charge. So an intent takes no commit of its own.
    """
    marks = await run_agent(env, [*map(reply, range(TURNS)), SUBMIT], turn_limit=TURNS + 1)
    # The first turn of all also writes down what is sent from here on, and keeps the document as it is shown.
    turns = [(marks[n + 1][0] - marks[n][0], marks[n + 1][1] - marks[n][1]) for n in range(1, TURNS)]
    assert turns == [(1 + of_the_tool, 2)] * (TURNS - 1)


async def test_a_turn_is_eight_transactions_at_most_in_the_shortest_legs_too(env: AgentEnvironment) -> None:
    turns_a_leg = 2
    marks = await run_agent(env, [*map(read_document, range(TURNS)), SUBMIT], turn_limit=turns_a_leg)
    at_leg_ends = [sum(mark) for mark in marks[turns_a_leg::turns_a_leg]]
    of_legs = [later - before for before, later in pairwise(at_leg_ends)]
    assert of_legs
    assert max(of_legs) <= MAX_TRANSACTIONS * turns_a_leg


async def test_a_compaction_is_five_reads_and_four_commits(full_env: AgentEnvironment) -> None:
    """Reads: the run with its task and documents, its work, what it has spent before the call and in the end, and what
    waits for memory. Commits: its fence, the call's intent, the record with its passages and charge, and that memory
    has the passages. More than one batch of passages takes one more of each.
    """
    request = full_env.make_compaction_request(await estimate_request_size(full_env))
    full_env.model = ScriptedModel([make_summary_response()])
    with counted(full_env.store) as transactions:
        outcome = await full_env.compactor.compact(request)
    assert (outcome.status, outcome.passages > 0) == (CompactionStatus.COMPRESSED, True)
    more_batches = (outcome.passages - 1) // EMBEDDING_BATCH
    assert (transactions.reads, transactions.writes) == (5 + more_batches, 4 + more_batches)


async def test_whoever_finds_the_intent_of_a_call_finds_all_that_the_call_sends(env: AgentEnvironment) -> None:
    open_intents: list[int] = []

    class Looking(ScriptedModel):
        async def complete(self, request: ModelRequest) -> ModelResponse:
            kept = (await env.store.load_transcript(RUN_ID, SYSTEM_SCOPE)).messages
            assert [message.id for message in kept] == [message.id for message in request.messages]
            open_intents.append((await env.store.get_run_usage(RUN_ID)).possibly_billed)
            return await super().complete(request)

    outcome = await env.run_leg(Looking([read_document(1), read_document(2), SUBMIT]))
    assert isinstance(outcome, AgentFinished)
    assert len(open_intents) == 3
    assert min(open_intents) > 0
    assert outcome.state.totals.possibly_billed == 0
