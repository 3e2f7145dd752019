"""What a turn costs the store: transactions, statements, processor time. `python -m benchmarks.turn_cost [ROUNDS]`.

One agent after another reads a document, turn after turn, with a model that answers at once, first in one long leg and
then in legs of two turns. SQLite, and PostgreSQL as a server of the tests, which does not wait for the disk: what it
counts itself (`pg_stat_database`) is shown beside what the store asked for.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import psutil
from sqlalchemy import Engine, event

from benchmarks.budgets.tables import print_table
from tests.support.agent_environment import AGENT_CONFIG, AgentEnvironment, ManualClock, make_tool_use
from tests.support.postgres_server import PostgresServer, run_postgres_server
from waystation.agents.leg import AgentFinished, LegRequest
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.models.ports import ModelResponse
from waystation.runtime.sql_store import SqlStore, migrate
from waystation.testing.doubles import ScriptedModel, make_scripted_response

TURNS = 20
"""Of one agent, the last of which hands in."""
LEGS = {"one leg": TURNS, "legs of two turns": 2}
"""Turns of a leg at most, by how the table calls it."""
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[]))
READS: Sequence[ModelResponse] = [
    make_scripted_response(make_tool_use("read_document", f"c{turn}", name="harbour.md")) for turn in range(TURNS - 1)
]


class Cost(NamedTuple):
    """Of one agent, for each turn."""

    transactions: float
    statements: float
    commits: float
    """That PostgreSQL counts."""
    rollbacks: float
    own_ms: float
    """Processor time of this process."""
    server_ms: float
    """And of the database's."""


class Counter:
    """Counts what is asked of all databases of this process."""

    def __init__(self) -> None:
        self.transactions = self.statements = 0
        event.listen(Engine, "begin", self._begun)
        event.listen(Engine, "after_cursor_execute", self._executed)

    def _begun(self, *_: object) -> None:
        self.transactions += 1

    def _executed(self, *_: object) -> None:
        self.statements += 1


def count_by_server(postgres: PostgresServer, name: str) -> tuple[int, int]:
    """Commits and rollbacks of those connections that were closed: an open one tells of its last ones late."""
    counted = postgres.run(f"SELECT xact_commit, xact_rollback FROM pg_stat_database WHERE datname = '{name}'")
    commits, rollbacks = map(int, counted.split("|"))
    return commits, rollbacks


def measure_server_seconds() -> float:
    """Processor time of the database's processes until now."""
    seconds = 0.0
    for one in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):  # it has just ended
            seconds += sum(one.cpu_times()[:2]) if one.name().startswith("postgres") else 0.0
    return seconds


async def run_agent(env: AgentEnvironment, turns_a_leg: int) -> None:
    """All turns of one agent."""
    terms = AGENT_CONFIG.replace(window=400_000, trigger=300_000, target=150_000, turn_limit=turns_a_leg)
    model = replace(env.metered_model, model=ScriptedModel([*READS, SUBMIT]))
    loop = replace(env.agent_loop, model=model)
    for leg in range(1, TURNS + 1):
        request = LegRequest(run=env.run_ref(), leg=leg, limit=Limit(tokens=10_000_000), config=terms)
        if isinstance(await loop.run(request, lambda: False), AgentFinished):
            return


async def measure(url: str, postgres: PostgresServer | None, rounds: int) -> Mapping[str, Cost]:
    """Medians of the rounds, by how the legs are cut."""
    counter, clock = Counter(), ManualClock()
    store = await SqlStore.open(url, clock)
    found: dict[str, list[Cost]] = {name: [] for name in LEGS}
    for number in range(rounds + 1):
        for name, turns_a_leg in LEGS.items():
            env = AgentEnvironment(store=store, clock=clock, store_id=await store.get_store_id())
            env.task_id = f"task-{number}-{turns_a_leg}"
            await env.open_task()
            await store.database.aclose()
            before = count_by_server(postgres, url.rpartition("/")[2]) if postgres else (0, 0)
            counted, server = (counter.transactions, counter.statements), measure_server_seconds()
            own = time.process_time()
            await run_agent(env, turns_a_leg)
            own = time.process_time() - own
            counted = (counter.transactions - counted[0], counter.statements - counted[1])
            server = measure_server_seconds() - server
            await store.database.aclose()
            await asyncio.sleep(0.5 if postgres else 0)  # the server is as far, too
            after = count_by_server(postgres, url.rpartition("/")[2]) if postgres else (0, 0)
            by_server = (after[0] - before[0], after[1] - before[1])
            if number:  # the first is for warming up
                found[name].append(Cost(*(n / TURNS for n in (*counted, *by_server, own * 1e3, server * 1e3))))
    await store.aclose()
    return {name: Cost(*map(statistics.median, zip(*costs, strict=True))) for name, costs in found.items()}


def main(rounds: int) -> None:
    with ExitStack() as stack:
        postgres = stack.enter_context(run_postgres_server())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server_url = Settings(store_url=postgres.new_database()).database_url
        asyncio.run(migrate(server_url, ManualClock()))
        rows: list[Sequence[object]] = []
        for store, url, server in (
            ("SQLite", f"sqlite+aiosqlite:///{folder}/waystation.db", None),
            ("PostgreSQL", server_url, postgres),
        ):
            for name, cost in asyncio.run(measure(url, server, rounds)).items():
                rows.append((store, name, *(f"{value:.1f}" for value in cost)))
    head = ("store", "legs", "transactions", "statements", "commits", "rollbacks", "own ms", "the database's ms")
    print_table(f"A turn, median of {rounds} agents of {TURNS} turns", head, rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 3)
