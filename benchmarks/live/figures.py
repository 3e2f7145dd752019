"""Figures from the recorded requests of a run."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import date
from typing import NamedTuple

from benchmarks.live.model import ROLES, Role
from benchmarks.live.provider import RecordedRequest
from benchmarks.live.run import RunResult
from waystation.kernel.usage import Usage
from waystation.models.prices import load_published_prices
from waystation.models.profiles import compute_cost_micro_usd

_TURNS: frozenset[Role] = frozenset({"research", "analysis", "writing"})


class RunFigures(NamedTuple):
    """Of one run. Tokens, unless a name says otherwise."""

    run: RunResult
    turns: int
    """Replies to agents."""
    thinking: int
    """Thinking blocks that were sent back, counted with every request."""
    dropped: int
    """Of these, those that the provider dropped."""
    dropped_between: int
    """Of the dropped ones, those that no compaction had made outdated."""
    fresh: int
    """Input that was not read from the cache, and output, of all calls."""
    output: int
    """What all calls said. What is sent back with a later request counts once more, as input."""
    documents: int
    """Pages of documents that agents read."""
    summaries: int
    """Fresh tokens of the calls for summaries."""
    compactions: int
    """Contexts that were smaller than before."""
    least_reply: Mapping[Role, int]
    """The smallest `max_tokens`, by role."""
    most_prompt: Mapping[Role, int]
    """The longest prompt, by role."""
    at_writer: int | None
    """What all calls before the writer's first one left of the budget as submitted, without what was granted later.
    Negative if they spent more; None if the writer made no call.
    """
    micro_usd: Mapping[Role, int]
    cached: float
    """Share of all input that was read from the cache."""
    cuts: int
    """Replies that `max_tokens` cut."""
    errors: int
    """Results of tools that are errors."""

    @property
    def fresh_a_turn(self) -> float:
        """Of all calls, for each turn of an agent."""
        return self.fresh / max(1, self.turns)

    @property
    def read_per_fresh(self) -> float:
        """Tokens of documents that were read for each fresh token."""
        return self.documents / max(1, self.fresh)

    @property
    def summary_share(self) -> float:
        """Of all fresh tokens, from 0 to 1."""
        return self.summaries / max(1, self.fresh)


def compute_figures(run: RunResult, budget: int, day: date) -> RunFigures:
    """Compute the figures of a run.

    Args:
        run: The run.
        budget: Of the task as submitted, in tokens.
        day: Day whose list prices apply.
    """
    turns = [call for call in run.calls if call.role in _TURNS]
    whole = sum((call.usage for call in run.calls), Usage())
    fresh = sum(map(_fresh, run.calls))
    return RunFigures(
        run=run,
        turns=len(turns),
        thinking=sum(call.thinking for call in run.calls),
        dropped=sum(call.dropped for call in run.calls),
        dropped_between=sum(call.dropped - call.outdated for call in run.calls),
        fresh=fresh,
        output=whole.output,
        documents=sum(call.documents for call in run.calls),
        summaries=sum(_fresh(call) for call in run.calls if call.role == "summary"),
        compactions=sum(call.compacted for call in run.calls),
        least_reply=_by_role(run.calls, least=True),
        most_prompt=_by_role(run.calls, least=False),
        at_writer=_left_for_writing(run.calls, budget),
        micro_usd=_dollars(run.calls, day),
        cached=whole.cached_share,
        cuts=sum(call.cut for call in run.calls),
        errors=sum(call.errors for call in run.calls),
    )


def build_rows(every: Sequence[RunFigures]) -> list[tuple[str, ...]]:
    """The table: a figure a row, a run a column."""
    return [
        _row("task ended as", [f"{one.run.phase}, {one.run.sections} sections" for one in every]),
        _row("requests for more budget", [f"{one.run.grants}" for one in every]),
        _row("limit of the task in the end", [f"{one.run.limit:,}" for one in every]),
        _row("turns of agents", [f"{one.turns:,}" for one in every]),
        _row("thinking blocks sent back", [f"{one.thinking:,}" for one in every]),
        _row("of these dropped", [f"{one.dropped:,}" for one in every]),
        _row("dropped between compactions (goal: 0)", [f"{one.dropped_between:,}" for one in every]),
        _row("input read from the cache", [f"{one.cached:.1%}" for one in every]),
        _row("fresh tokens", [f"{one.fresh:,}" for one in every]),
        _row("of these said by the model", [f"{one.output:,}" for one in every]),
        _row("fresh tokens a turn", [f"{one.fresh_a_turn:,.0f}" for one in every]),
        _row("tokens of documents read", [f"{one.documents:,}" for one in every]),
        _row("of these for each fresh token (goal: 0.65)", [f"{one.read_per_fresh:.2f}" for one in every]),
        _row("compactions", [f"{one.compactions:,}" for one in every]),
        _row("summaries, share of fresh tokens (goal: 5 %)", [f"{one.summary_share:.1%}" for one in every]),
        _row("left of the submitted budget for the writer (goal: 90,000)", [_tokens(one.at_writer) for one in every]),
        _row("replies cut by max_tokens", [f"{one.cuts:,}" for one in every]),
        _row("refused requests, failed tools", [f"{len(one.run.refusals)}, {one.errors}" for one in every]),
        *(_role_row("least max_tokens", role, [one.least_reply for one in every]) for role in ROLES),
        *(_role_row("longest prompt", role, [one.most_prompt for one in every]) for role in ROLES),
        *(_dollar_row(role, every) for role in ROLES),
        _row("dollars in all", [f"${sum(one.micro_usd.values()) / 1e6:.2f}" for one in every]),
        _row("seconds", [f"{one.run.seconds:.0f}" for one in every]),
    ]  # fmt: skip


def _row(name: str, cells: Sequence[str]) -> tuple[str, ...]:
    return (name, *cells)


def _role_row(name: str, role: Role, every: Sequence[Mapping[Role, int]]) -> tuple[str, ...]:
    return _row(f"{name}, {role}", [_tokens(one.get(role)) for one in every])


def _dollar_row(role: Role, every: Sequence[RunFigures]) -> tuple[str, ...]:
    return _row(f"dollars, {role}", [f"${one.micro_usd.get(role, 0) / 1e6:.2f}" for one in every])


def _tokens(count: int | None) -> str:
    return "none" if count is None else f"{count:,}"


def _fresh(call: RecordedRequest) -> int:
    return call.usage.input + call.usage.cache_write + call.usage.output


def _by_role(calls: Sequence[RecordedRequest], *, least: bool) -> dict[Role, int]:
    found: dict[Role, list[int]] = defaultdict(list)
    for call in calls:
        found[call.role].append(call.max_tokens if least else call.usage.prompt_tokens)
    return {role: min(values) if least else max(values) for role, values in found.items()}


def _left_for_writing(calls: Sequence[RecordedRequest], budget: int) -> int | None:
    """Calls before the writer's first one are those that were answered before it."""
    first = next((place for place, call in enumerate(calls) if call.role == "writing"), None)
    return None if first is None else budget - sum(map(_fresh, calls[:first]))


def _dollars(calls: Sequence[RecordedRequest], day: date) -> dict[Role, int]:
    paid: dict[Role, int] = defaultdict(int)
    for call in calls:
        paid[call.role] += compute_cost_micro_usd(call.model, call.usage, day, load_published_prices()) or 0
    return dict(paid)
