"""Measures how agents share a provider's quota, and how they come back after a refusal, with and without the limiter.

`python -m benchmarks.rate_limits [AGENTS] [SECONDS]`: by default 512 agents for 60 seconds.

The provider is in the process: Messages behind the real SDK, with token buckets as documented, and limits in headers.
Agents are the platform's metered calls, spread over four limiters that share an SQLite store as four workers do. The
baseline repeats a refused call as a new attempt, exactly when the provider said, which is what Temporal's retry does.

Time is simulated: whenever nothing can be done, the clock jumps to the next timer. So the result does not depend on the
speed of the machine, only on what waits for what.
"""

import asyncio
import logging
import selectors
import statistics
import sys
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import TypeVar

import httpx2

from benchmarks.budgets.tables import describe_machine, print_table
from waystation.agents.call_ledger import CallKey, MeteredModel, PreparedCall, RetryWaitPolicy
from waystation.context.transcript import CallIntent, Fence, Text, build_user_message
from waystation.kernel.amount import Amount
from waystation.kernel.errors import ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import EndpointRegistry
from waystation.models.ports import (
    LimitRepository,
    LimitScope,
    ModelRequest,
    ModelResponse,
    ScopedLimitState,
    StopReason,
)
from waystation.models.rate_limiter import LimiterContext, RateLimiter
from waystation.models.rate_limits import LeaseGrant, LeaseRequest
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import RecordingMeter, ScriptedModel
from waystation.testing.messages_server import build_error_response, build_message_body, build_stream_response
from waystation.workers.models import ModelRouter, RouterLimits

MODEL = "claude-sonnet-5-5"
WORKERS = 4
PER_MINUTE = {"requests": 600.0, "input-tokens": 400_000.0, "output-tokens": 45_000.0}
"""Output tokens are the scarce ones: about 200 of the calls below a minute."""
HELD_SECONDS = 10.0
"""What the provider's bucket holds at most, in seconds of its limit. It is empty when the agents begin."""
INPUT_TOKENS, OUTPUT_TOKENS = 1_000, (50, 400)
REPLY_SECONDS = 2.5
WARM_UP_SECONDS = 15.0
QUIET_PAUSE_SECONDS = 5.0
MIN_SHARE = 0.9
REFUSED_TOGETHER, RETRY_AFTER = 64, 5.0
"""Calls that are refused at the same moment, and the delay that the provider names."""


ResultT = TypeVar("ResultT")


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while there is work, and jumps to the next timer when there is none."""

    def __init__(self) -> None:
        """Start at 0."""
        self._simulated, self.busy = 0.0, 0
        super().__init__(_SimulatedSelector(self))

    def time(self) -> float:
        """Return the simulated time in seconds."""
        return self._simulated

    def jump(self, seconds: float) -> None:
        """Let time pass."""
        self._simulated += seconds


class _SimulatedSelector(selectors.DefaultSelector):
    """Waits for real only while a thread works for the loop (`SimulatedLoop.busy`)."""

    def __init__(self, loop: SimulatedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if self._loop.busy or timeout is None:
            return super().select(0.01)
        self._loop.jump(timeout)
        return []


def get_loop() -> SimulatedLoop:
    """Return the running loop."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimulatedLoop)
    return loop


def now() -> float:
    """Return the simulated time in seconds."""
    return get_loop().time()


def utc_now() -> datetime:
    """Return the simulated time as a moment."""
    return datetime.fromtimestamp(1_800_000_000 + now(), UTC)


async def work_in_thread(work: Coroutine[object, object, ResultT]) -> ResultT:
    """Wait for something that a thread does, while the clock stands still."""
    loop = get_loop()
    loop.busy += 1
    try:
        return await work
    finally:
        loop.busy -= 1


class SharedLeases:
    """The leases of an SQLite store, in simulated time. A `LimitRepository`."""

    def __init__(self, leases: LimitRepository) -> None:
        """Wrap the repository."""
        self._leases = leases
        self.transactions = 0

    async def acquire_lease(self, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        """See `LimitRepository`."""
        self.transactions += 1
        return await work_in_thread(self._leases.acquire_lease(scope, request))

    async def list_limit_states(self) -> tuple[ScopedLimitState, ...]:
        """See `LimitRepository`."""
        return await work_in_thread(self._leases.list_limit_states())


class UnwrittenStore(SqlStore):
    """A store without the intents and charges of calls, of which other benchmarks measure the cost."""

    async def record_and_count_intents(self, fence: Fence, intent: CallIntent) -> int:
        """Write nothing."""
        del fence, intent
        return 1

    async def drop_intent(self, fence: Fence, key: str) -> None:
        """Write nothing."""
        del fence, key


@dataclass
class Bucket:
    """One of the provider's token buckets."""

    per_minute: float
    level: float = 0.0
    at: float = field(default_factory=now)

    def refill(self) -> float:
        """Return the level now."""
        added = (now() - self.at) * self.per_minute / 60
        self.level, self.at = min(self.level + added, self.per_minute * HELD_SECONDS / 60), now()
        return self.level


@dataclass
class MeteredServer:
    """A Messages endpoint with a quota. Output tokens count as they are produced, so a bucket may end below zero."""

    random: Random
    buckets: dict[str, Bucket] = field(default_factory=dict[str, Bucket])
    refuse_next: int = 0
    """So many calls are refused with a delay and without headers about limits."""
    refused: int = 0
    output: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])
    """When each reply was given, and its output tokens."""
    arrivals: list[float] = field(default_factory=list[float])

    async def respond(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        del request
        self.arrivals.append(now())
        if self.refuse_next:
            self.refuse_next -= 1
            return build_error_response(429, "rate_limit_error", headers={"retry-after": str(int(RETRY_AFTER))})
        headers = self._charge(1, INPUT_TOKENS)
        if headers is None:
            self.refused += 1
            return self._refuse()
        await asyncio.sleep(REPLY_SECONDS)
        tokens = self.random.randint(*OUTPUT_TOKENS)
        if self.buckets:
            self.buckets["output-tokens"].level -= tokens
        self.output.append((now(), tokens))
        usage = Usage(input=INPUT_TOKENS, output=tokens)
        reply = ModelResponse(blocks=(Text(text="So."),), stop=StopReason.END_TURN, usage=usage, model=MODEL, id="m")
        response = build_stream_response(build_message_body(reply))
        response.headers.update(headers)
        return response

    def _charge(self, requests: int, tokens: int) -> dict[str, str] | None:
        if not self.buckets:
            return {}
        if any(bucket.refill() <= 0 for bucket in self.buckets.values()):
            return None
        self.buckets["requests"].level -= requests
        self.buckets["input-tokens"].level -= tokens
        return self._describe()

    def _describe(self) -> dict[str, str]:
        named: dict[str, str] = {}
        for name, bucket in self.buckets.items():
            named[f"anthropic-ratelimit-{name}-limit"] = f"{bucket.per_minute:.0f}"
            named[f"anthropic-ratelimit-{name}-remaining"] = f"{max(0.0, bucket.refill()):.0f}"
        return named

    def _refuse(self) -> httpx2.Response:
        owed = max(-bucket.refill() * 60 / bucket.per_minute for bucket in self.buckets.values())
        headers = {"retry-after": str(max(1, round(owed + 0.5))), **self._describe()}
        return build_error_response(429, "rate_limit_error", headers=headers)


@dataclass
class Fleet:
    """Workers of one store at one provider."""

    store: SqlStore
    leases: SharedLeases
    server: MeteredServer
    paced: bool
    waits: list[float] = field(default_factory=list[float])
    """What the quiet tenant's calls waited until they were made, in seconds."""
    failed: int = 0
    """Calls that were given up for good."""
    answered: int = 0
    attempts: int = 0
    """Attempts that were refused and repeated as whole new ones."""

    def start_worker(self, name: str, tenant: Callable[[], str]) -> MeteredModel:
        """Start a worker: its model with its limiter, or without one."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self.server.respond))
        model = create_anthropic_model("key", "https://models.example", http)
        pacing = None
        if self.paced:
            context = LimiterContext(self.leases, name, now, Random(name).random)
            scope = LimitScope("https://models.example", "account", MODEL)
            pacing = RouterLimits(RateLimiter(context), lambda _: scope)
        router = ModelRouter(ScriptedModel([]), model, {}, EndpointRegistry(), pacing=pacing)
        waits = RetryWaitPolicy(_sleep, Random(name).random) if self.paced else RetryWaitPolicy()
        return MeteredModel(router, self.store, utc_now, RecordingMeter(), waits=waits, get_tenant=tenant)

    async def make_call(self, worker: MeteredModel, fence: Fence, turn: int) -> None:
        """Make one turn's call, as often as it takes."""
        request = ModelRequest(
            model=MODEL, system="", messages=(build_user_message("m1", "word " * INPUT_TOKENS),), max_output=1_000
        )
        call = PreparedCall(request, Amount(tokens=10_000), (), date(2026, 11, 30))
        while True:
            try:
                await worker.run_call(fence, CallKey("turn", str(turn)), call)
            except ModelUnavailable as error:
                if error.retry_after is None:
                    self.failed += 1
                    return
                self.attempts += 1
                await asyncio.sleep(error.retry_after)
            else:
                self.answered += 1
                return


async def _sleep(seconds: float) -> bool:
    await asyncio.sleep(seconds)
    return True


async def _share(folder: Path, agents: int, seconds: float, *, paced: bool) -> tuple[Fleet, float]:
    """Let agents of a loud tenant work without a pause, and one of a quiet tenant now and then.

    Returns the fleet, and the share of the quota that was used after the warm-up: of what was added to the provider's
    bucket meanwhile, that which did not run over. A bucket that begins or ends below zero counts as below zero.
    """
    store = await work_in_thread(UnwrittenStore.open(f"sqlite+aiosqlite:///{folder}/{paced}.db", utc_now))
    server = MeteredServer(Random(1), {name: Bucket(limit) for name, limit in PER_MINUTE.items()})
    fleet = Fleet(store, SharedLeases(store.build_limit_repository()), server, paced)
    loud = [fleet.start_worker(f"worker-{number}", lambda: "loud") for number in range(WORKERS)]
    fences = [Fence(run_id=f"task-{number}/research-1", number=1) for number in range(agents)]
    # The same workers serve the quiet tenant.
    quiet = MeteredModel(
        loud[0].model, store, utc_now, RecordingMeter(), waits=loud[0].waits, get_tenant=lambda: "quiet"
    )
    quiet_fence = Fence(run_id="task-quiet/research-1", number=1)

    async def work(number: int) -> None:
        turn = 0
        while True:
            turn += 1
            await fleet.make_call(loud[number % WORKERS], fences[number], turn)

    async def work_quietly() -> None:
        turn = 0
        while True:
            await asyncio.sleep(QUIET_PAUSE_SECONDS)
            turn, began = turn + 1, now()
            await fleet.make_call(quiet, quiet_fence, turn)
            fleet.waits.append(now() - began - REPLY_SECONDS)

    tasks = [asyncio.create_task(work(number)) for number in range(agents)]
    tasks.append(asyncio.create_task(work_quietly()))
    await asyncio.sleep(WARM_UP_SECONDS)
    began, stock = now(), server.buckets["output-tokens"].refill()
    await asyncio.sleep(seconds)
    ended, left = now(), server.buckets["output-tokens"].refill()
    used = sum(tokens for at, tokens in server.output if began <= at < ended)
    for task in tasks:
        task.cancel()
    failures = [one for one in await asyncio.gather(*tasks, return_exceptions=True) if isinstance(one, Exception)]
    fleet.failed += len(failures)
    await work_in_thread(store.aclose())
    return fleet, (used - stock + left) / (PER_MINUTE["output-tokens"] / 60 * (ended - began))


async def _come_back(folder: Path, *, paced: bool) -> list[float]:
    """Have calls refused together. Returns when each was repeated, in seconds after the refusal of the first."""
    store = await work_in_thread(UnwrittenStore.open(f"sqlite+aiosqlite:///{folder}/back-{paced}.db", utc_now))
    server = MeteredServer(Random(1), refuse_next=REFUSED_TOGETHER)
    fleet = Fleet(store, SharedLeases(store.build_limit_repository()), server, paced)
    workers = [fleet.start_worker(f"worker-{number}", lambda: "loud") for number in range(WORKERS)]
    fences = [Fence(run_id=f"task-{number}/research-1", number=1) for number in range(REFUSED_TOGETHER)]
    await asyncio.gather(*(fleet.make_call(workers[number % WORKERS], fence, 1) for number, fence in enumerate(fences)))
    await work_in_thread(store.aclose())
    first, *_ = server.arrivals
    back = server.arrivals[REFUSED_TOGETHER:]
    assert len(back) == REFUSED_TOGETHER
    return [at - first for at in back]


async def main(agents: int, seconds: float) -> None:
    """Measure both, and print the tables. Raises AssertionError if the limiter does not do what it is for."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        without, share_without = await _share(folder, agents, seconds, paced=False)
        limited, share = await _share(folder, agents, seconds, paced=True)
        back_without, back = await _come_back(folder, paced=False), await _come_back(folder, paced=True)
    rows = [
        [
            row,
            f"{used:.0%}",
            fleet.failed,
            fleet.server.refused,
            fleet.attempts,
            f"{statistics.median(fleet.waits):.1f} s" if fleet.waits else "no call got through",
            f"{max(fleet.waits):.1f} s" if fleet.waits else "",
            f"{fleet.leases.transactions / max(1, fleet.answered):.2f}" if fleet.paced else "",
        ]
        for row, used, fleet in (
            ("without the limiter (baseline)", share_without, without),
            ("with the limiter", share, limited),
        )
    ]
    head = [
        "",
        "share of the quota",
        "failed",
        "refused",
        "new attempts",
        "a quiet tenant's call, median",
        "slowest",
        "transactions a call",
    ]
    print_table(f"{agents} agents at one account's quota, {seconds:.0f} s ({describe_machine()})", head, rows)
    spread = [
        [row, f"{min(seen):.1f} s", f"{max(seen) - min(seen):.1f} s"]
        for row, seen in (("without (baseline)", back_without), ("waits with jitter, and the limiter", back))
    ]
    title = f"{REFUSED_TOGETHER} calls refused together with retry-after {RETRY_AFTER:.0f}"
    print_table(title, ["", "first is back after", "from the first to the last"], spread)
    assert limited.failed == 0
    assert share >= MIN_SHARE, f"{share:.0%} of the quota"
    assert min(back) >= RETRY_AFTER


if __name__ == "__main__":
    logging.getLogger("waystation").setLevel(logging.ERROR)
    most, long = [*sys.argv[1:], "512", "60"][:2] if len(sys.argv) != 2 else (sys.argv[1], "60")
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(main(int(most), float(long)))
