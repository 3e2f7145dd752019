"""Computes the cost of a long run at list prices with a prompt cache, by its compaction strategy, and what survives."""

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from statistics import fmean
from typing import NamedTuple

from benchmarks.budgets.tables import print_table
from benchmarks.context.conversations import (
    OPEN_WORK,
    RUN_ID,
    Conversation,
    TextGenerator,
    add_turns,
    open_conversation,
)
from benchmarks.context.engine import FIXED, SUMMARISERS, CompactedTranscript, Summariser, build_policy
from benchmarks.context.kept import RetentionShares, compute_visible_share, measure_retention
from benchmarks.context.others import ConversationPolicy, NoCompaction, build_published_policies
from benchmarks.context.prompt_cache import PromptCache
from waystation.context.policy import CompactionPolicy
from waystation.context.strategies import STRATEGIES
from waystation.context.tokens import estimate_message
from waystation.context.transcript import Message, Transcript
from waystation.kernel.usage import Usage
from waystation.models.prices import load_published_prices
from waystation.models.profiles import DEFAULT_AGENT_MODEL, DEFAULT_SUMMARY_MODEL, compute_cost_micro_usd

TURNS, TOKENS_A_TURN, SEEDS = 300, 1_500, (1, 2, 3)
PRICED = date(2026, 11, 1)
PROMPT = 800
"""Tokens of a summariser's instructions."""
SHORT_PAUSE, LONG_PAUSE = (8.0, 45.0), (400.0, 900.0)
"""Seconds from request to request: as a rule, and where a slow tool or a person is waited for."""
LONG_SHARE = 0.03
HEAD = (
    "policy", "compactions", "largest request", "cache read", "cache written", "other input", "output", "dollars",
    "over the default",
    "pins", "constraints", "open work", "latest request", "identifiers in view",
)  # fmt: skip
DEFAULT = f"`{CompactionPolicy.model_fields['strategy'].default}`"
Make = Callable[[Summariser], ConversationPolicy]


class RunCost(NamedTuple):
    """What a run came to."""

    usage: Usage
    """Of all calls."""
    dollars: float
    compactions: int
    largest: int
    """Tokens of the largest request."""
    least: RetentionShares
    """Of each share, the least in any request after the first compaction."""
    identifiers: float
    """Share in the view at the end."""


class _Request(NamedTuple):
    heard: Sequence[Message]
    """What is new in it."""
    reply: Message
    at: float
    """Seconds since the first."""


def run(following: ConversationPolicy, seed: int) -> RunCost:
    """One run; the conversation, its pauses and so the requests without compaction are the same for every policy."""
    conversation, cache = open_conversation(), PromptCache(FIXED)
    priced: list[tuple[str, Usage]] = []
    shares, compactions, summaries = [RetentionShares(1, 1, 1, 1)], 0, 0
    for request in _requests(conversation, seed):
        for message in request.heard:
            following.say(message, pin=message.id in conversation.pinned)
        compactions += following.make_room()
        asked = following.calls[summaries:]
        priced += ((DEFAULT_SUMMARY_MODEL, Usage(input=call.input + PROMPT, output=call.output)) for call in asked)
        summaries = len(following.calls)
        shown = following.shown
        priced.append(
            (DEFAULT_AGENT_MODEL, cache.charge(shown, request.at) + Usage(output=estimate_message(request.reply)))
        )
        following.say(request.reply)
        if compactions:
            shares.append(measure_retention(conversation, following.shown, OPEN_WORK))
    return RunCost(
        usage=sum((usage for _, usage in priced), Usage()),
        dollars=sum(_micro_usd(model, usage) for model, usage in priced) / 1_000_000,
        compactions=compactions,
        largest=max(usage.prompt_tokens for model, usage in priced if model == DEFAULT_AGENT_MODEL),
        least=RetentionShares(*map(min, zip(*shares, strict=True))),
        identifiers=compute_visible_share(conversation.planted, following.shown),
    )


def _requests(conversation: Conversation, seed: int) -> Iterator[_Request]:
    """Each turn's request. The conversation has its reply already, which is the call that waits for a result."""
    talk = add_turns(conversation, TextGenerator(random.Random(seed)), TOKENS_A_TURN)
    chance, heard, now = random.Random(seed), 0, 0.0
    for _ in range(TURNS):
        next(talk)
        *new, reply = conversation.messages[heard:]
        heard = len(conversation.messages)
        yield _Request(new, reply, now)
        now += chance.uniform(*(LONG_PAUSE if chance.random() < LONG_SHARE else SHORT_PAUSE))


def _micro_usd(model: str, usage: Usage) -> int:
    cost = compute_cost_micro_usd(model, usage, PRICED, load_published_prices())
    assert cost is not None, f"{model} has a price"
    return cost


def build_policies() -> dict[str, Make]:
    """By name: none, ours, and those that other systems publish."""
    ours: dict[str, Make] = {
        f"`{strategy}`": lambda summariser, strategy=strategy: CompactedTranscript(
            Transcript(run_id=RUN_ID), build_policy(strategy), summariser
        )
        for strategy in STRATEGIES
    }
    others: dict[str, Make] = {
        name: lambda summariser, name=name: build_published_policies(summariser)[name]
        for name in build_published_policies(SUMMARISERS["one that loses all"])
    }
    return {"none": lambda _: NoCompaction(), **ours, **others}


def prove() -> None:
    """Print a table for each summariser. Raises AssertionError where one of our strategies loses what it must not."""
    for name, summariser in SUMMARISERS.items():
        ended = {policy: [run(make(summariser), seed) for seed in SEEDS] for policy, make in build_policies().items()}
        title = (
            f"{TURNS} turns of {TOKENS_A_TURN:,} tokens with {DEFAULT_AGENT_MODEL}; summariser: {name}; "
            f"{len(SEEDS)} runs"
        )
        print_table(title, HEAD, [_row(policy, ends, ended[DEFAULT]) for policy, ends in ended.items()])
        lossless = [
            policy for policy, ends in ended.items() if all(end.compactions and end.least.is_complete for end in ends)
        ]
        cheapest = min(lossless, key=lambda policy: sum(end.dollars for end in ended[policy]))
        print(f"\nCheapest that keeps 100 % of pins, constraints, open work and latest request: {cheapest}.")
        assert {f"`{strategy}`" for strategy in STRATEGIES} <= set(lossless)


def _row(policy: str, ends: Sequence[RunCost], default: Sequence[RunCost]) -> Sequence[object]:
    """Means, but of what must not be lost the least."""
    usage = sum((end.usage for end in ends), Usage())
    ratios = sorted(end.dollars / own.dollars for end, own in zip(ends, default, strict=True))
    largest = max(end.largest for end in ends)
    tokens = (
        largest,
        *(count // len(ends) for count in (usage.cache_read, usage.cache_write, usage.input, usage.output)),
    )
    least = RetentionShares(*map(min, zip(*(end.least for end in ends), strict=True)))
    return (
        policy,
        f"{fmean(end.compactions for end in ends):.1f}",
        *(f"{count:,}" for count in tokens),
        f"{fmean(end.dollars for end in ends):.2f}",
        f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
        *(f"{part:.0%}" for part in (*least, fmean(end.identifiers for end in ends))),
    )
