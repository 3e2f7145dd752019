"""Published sizes before and after compaction, and the engine's results for conversations of the same size."""

from collections.abc import Sequence

from benchmarks.budgets.tables import print_table
from benchmarks.context.conversations import generate_transcript
from benchmarks.context.engine import MEASURE, CompactedTranscript, build_policy, summarise_offline
from waystation.config.presets import DEFAULT_AGENT_BUDGET
from waystation.context.tokens import estimate_messages

PUBLISHED = {(50, 10_000): None, (100, 25_000): 12_000, (500, 125_000): 15_000, (1_000, 250_000): 15_000}
"""Tokens left, by messages and tokens; None: not compacted."""
WINDOW = (DEFAULT_AGENT_BUDGET.tokens or 0) // 2
"""What an agent works in by default: half of what it starts with."""
HEAD = ("messages", "tokens", "published", "ours, automatic", "ours, on request")


def prove() -> None:
    """Print the table. Sizes are of the conversation, without system prompt and tools."""
    policy = build_policy("window", WINDOW)
    title = f"Tokens left, window {WINDOW:,}: full at {policy.trigger:,}, system prompt and tools included"
    print_table(title, HEAD, [_row(messages, tokens, left) for (messages, tokens), left in PUBLISHED.items()])


def _row(messages: int, tokens: int, published: int | None) -> Sequence[object]:
    by_itself, asked = (
        CompactedTranscript(generate_transcript(messages, tokens), build_policy("window", WINDOW), summarise_offline)
        for _ in range(2)
    )
    said = estimate_messages(by_itself.shown)
    compacted = by_itself.make_room() > 0
    asked.policy = asked.policy.for_too_many_messages(MEASURE.request(asked.shown))
    asked.compact()
    return (
        messages,
        f"{said:,}",
        _left(tokens, published),
        _left(said, estimate_messages(by_itself.shown) if compacted else None),
        _left(said, estimate_messages(asked.shown)),
    )


def _left(before: int, after: int | None) -> str:
    return "not compacted" if after is None else f"{after:,} ({1 - after / before:.0%} less)"
