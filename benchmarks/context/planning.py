"""Measures the time to plan and apply a compaction, how it scales, and LangChain's for comparison."""

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from benchmarks.budgets.tables import print_table
from benchmarks.context.conversations import REREADABLE, generate_transcript
from benchmarks.context.engine import MEASURE, CompactedTranscript, build_policy, summarise_nothing
from benchmarks.context.langchain_peers import build_peers
from waystation.context.history import build_model_view, with_record
from waystation.context.pipeline import SummariseDecision, select_next_stage
from waystation.context.policy import CompactionPolicy
from waystation.context.summary import build_summary_message
from waystation.context.summary_validator import AcceptedSummary, SummaryCheckInput, check_summary
from waystation.context.transcript import Message, SummaryRecord, Transcript
from waystation.context.units import build_layout

SIZES, TOKENS_A_MESSAGE = (100, 300, 1_000, 3_000, 10_000), 250
COMPARED = 1_000
"""Messages of the conversation that is compared on."""
ROUNDS = 9
GOAL_MS = 5
PARTS = {
    "measure": "before it: the first measuring",
    "plan": "plan",
    "layout": "of it: the layout",
    "apply": "apply",
    "text": "text for the summariser",
    "check": "check of its summary",
}
"""What is timed: plan is `select_next_stage`; apply is `with_record` and `view`. Before either, agents and compactions
measure
the request: messages that they have just loaded for the first time, of a conversation that goes on only the newest."""
_T = TypeVar("_T")


class StoredConversation(NamedTuple):
    """A conversation that is just full, as it is stored."""

    stored: str
    policy: CompactionPolicy

    @property
    def load(self) -> Transcript:
        """Anew, so that nothing of an earlier round is kept."""
        return Transcript.model_validate_json(self.stored)


def build_case(messages: int) -> StoredConversation:
    """So many messages of 250 tokens."""
    transcript = generate_transcript(messages, messages * TOKENS_A_MESSAGE)
    window = MEASURE.request(transcript.messages) * 4 // 3 - 8
    return StoredConversation(transcript.model_dump_json(), build_policy("window", window))


def plan(transcript: Transcript, policy: CompactionPolicy) -> SummariseDecision:
    """What the ladder says: `layout`, what it covers, its identity."""
    rung = select_next_stage(transcript, MEASURE, policy, REREADABLE)
    assert isinstance(rung, SummariseDecision)
    return rung


def check(replaced: SummaryCheckInput) -> str:
    """The summary with its ledger."""
    verdict = check_summary(summarise_nothing(), replaced)
    assert isinstance(verdict, AcceptedSummary)
    return verdict.text


def apply(transcript: Transcript, rung: SummariseDecision, text: str) -> tuple[Message, ...]:
    """The view with the record over the transcript."""
    summary = build_summary_message(rung.compaction_id, text)
    record = SummaryRecord(id=rung.compaction_id, strategy="window", covered=rung.covered_ids, summary=summary)
    return build_model_view(with_record(transcript, record))


class Clock:
    """Processor time by what it was taken for: on a shared machine it says more than the clock on the wall."""

    def __init__(self) -> None:
        self.took: dict[str, list[float]] = {}

    def measure(self, name: str, work: Callable[[], _T]) -> _T:
        """What the work comes to."""
        start = time.process_time()
        result = work()
        self.took.setdefault(name, []).append((time.process_time() - start) * 1_000)
        return result

    @property
    def medians(self) -> dict[str, float]:
        """Milliseconds."""
        return {name: statistics.median(took) for name, took in self.took.items()}


def measure_product(case: StoredConversation, clock: Clock) -> None:
    """One round of every part, each on a transcript that is new."""
    transcript = case.load
    clock.measure("measure", lambda: MEASURE.request(build_model_view(transcript)))
    rung = clock.measure("plan", lambda: plan(transcript, case.policy))
    replaced = clock.measure(
        "text", lambda: CompactedTranscript(transcript, case.policy, summarise_nothing).build_summary_input(rung)
    )
    text = clock.measure("check", lambda: check(replaced))
    clock.measure("apply", lambda: apply(transcript, rung, text))
    clock.measure("layout", lambda: build_layout(transcript))


def compute_growth_exponent(medians: Mapping[int, float]) -> float:
    """The exponent with which the time grows with the number of messages: the slope in logarithms."""
    x, y = [math.log(size) for size in medians], [math.log(took) for took in medians.values()]
    return statistics.linear_regression(x, y).slope


def prove() -> None:
    """Print both tables."""
    by_size: dict[int, dict[str, float]] = {}
    for size in SIZES:
        case, clock = build_case(size), Clock()
        for _ in range(ROUNDS):
            measure_product(case, clock)
        by_size[size] = clock.medians
    _show_growth(by_size)
    _show_peers()


def _show_growth(by_size: Mapping[int, Mapping[str, float]]) -> None:
    columns: dict[str, dict[int, float]] = {
        "plan and apply": {size: took["plan"] + took["apply"] for size, took in by_size.items()},
        **{name: {size: took[name] for size, took in by_size.items()} for name in PARTS},
    }
    rows: list[Sequence[object]] = [
        (f"{size:,}", f"{size * TOKENS_A_MESSAGE:,}", *(f"{column[size]:.2f} ms" for column in columns.values()))
        for size in by_size
    ]
    rows.append(
        ("grows with the power", "", *(f"{compute_growth_exponent(column):.2f}" for column in columns.values()))
    )
    print_table(
        f"Planning and applying a compaction, strategy `window`: median of {ROUNDS} rounds, processor time",
        ("messages", "tokens", *(PARTS.get(name, name) for name in columns)),
        rows,
    )
    reached = columns["plan and apply"][COMPARED]
    print(f"\nPlan and apply with {COMPARED:,} messages: {reached:.1f} ms (goal: under {GOAL_MS} ms).")


def _show_peers() -> None:
    case, clock = build_case(COMPARED), Clock()
    found = build_peers(case.load.messages, case.policy)
    for _ in range(ROUNDS):
        measure_product(case, clock)
        for name, peer in found.items():
            work = peer()
            clock.measure(name, work)
    took = clock.medians
    mine = {
        "plan and apply": took["plan"] + took["apply"],
        "the first measuring, plan and apply": sum(took[name] for name in ("measure", "plan", "apply")),
        "plan, text for the summariser, check and apply": sum(
            took[name] for name in ("plan", "text", "check", "apply")
        ),
    }
    rows = [
        (name, f"{ms:.2f} ms", *(f"{ms / own:.2f}" for own in mine.values()))
        for name, ms in {**mine, **{name: took[name] for name in found}}.items()
    ]
    print_table(f"{COMPARED:,} messages, in turns", ("", "median", *(f"over {name}" for name in mine)), rows)
    if not found:
        print("\nLangChain is not installed: see benchmarks/README.md for the command that brings it.")
