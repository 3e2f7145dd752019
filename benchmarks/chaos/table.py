"""The verdict as a table for a README, and what is wrong, line by line."""

from benchmarks.chaos.account import Verdict
from benchmarks.chaos.run import ChaosConfig, ChaosResult


def table(order: ChaosConfig, outcome: ChaosResult) -> str:
    """Markdown."""
    verdict = outcome.verdict
    sandwich = f"{verdict.charges:,} ≤ {verdict.answered:,} ≤ {verdict.charges:,} + {verdict.intents:,}"
    rows = [
        ("seed", f"{order.seed}"),
        ("kills", f"{outcome.kills.total():,}"),
        *((f"killed: {victim}, {moment}", f"{count:,}") for (victim, moment), count in sorted(outcome.kills.items())),
        ("tasks", f"{outcome.tasks:,}"),
        ("pauses approved", f"{outcome.approvals:,}"),
        ("answered turns", f"{outcome.turns:,}"),
        ("calls refused, replies cut off", f"{outcome.refused:,}, {outcome.cut:,}"),
        ("wall time", f"{outcome.wall_s:,.0f} s, of which {outcome.killing_s:,.0f} s with kills"),
        ("workers that ended without being killed", f"{outcome.worker_exits:,}"),
        ("**calls for a turn whose reply was committed**", f"**{len(verdict.asked_again):,}**"),
        ("**turns lost**", f"**{len(verdict.lost):,}**"),
        ("**tasks not finished**", f"**{len(verdict.unfinished):,}**"),
        ("**tasks that spent more than their limit**", f"**{len(verdict.over_limit):,}**"),
        ("**intents shown as possibly billed**", f"**{verdict.intents:,}**"),
        ("**charges ≤ calls answered ≤ charges + open intents**", f"**{sandwich}**"),
        ("exceptions, if this is checked for each turn, plan and task's summaries", f"{len(verdict.unexplained):,}"),
    ]
    return "\n".join(["| | |", "|---|---:|", *(f"| {name} | {value} |" for name, value in rows)])


def faults(verdict: Verdict) -> list[str]:
    """Everything that does not hold."""
    kinds = {
        "asked again": verdict.asked_again,
        "lost": verdict.lost,
        "not finished": verdict.unfinished,
        "unexplained": verdict.unexplained,
        "over its limit": verdict.over_limit,
    }
    return [f"{kind}: {fault}" for kind, found in kinds.items() for fault in found]
