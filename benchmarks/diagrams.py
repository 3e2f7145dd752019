"""Writes the diagram of an agent run's states into ARCHITECTURE.md: `make diagrams`.

The diagram is explored, not drawn: `AgentRun` is driven from its first state by every outcome that its next action can
have, until no new state appears.
"""

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, get_args

from waystation.agents.action_approvals import ActionDecision, ActionQuestion
from waystation.agents.agent_run import (
    AgentRun,
    ApplyContextEdit,
    CompactContext,
    FinishRun,
    RequestApproval,
    RequestBudget,
    RunLeg,
    StartSubagents,
)
from waystation.agents.compaction_request import EditOutcome
from waystation.agents.delegation import SubagentOrder, SubagentResult
from waystation.agents.leg import (
    AgentConfig,
    AgentFinished,
    ApprovalRequired,
    BudgetExhausted,
    ContextFull,
    Interrupted,
    LegOutcome,
    LegState,
    OperatorActionRequired,
    SubagentsRequested,
    TurnLimitReached,
)
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import CompactionOutcome, CompactionStatus, ContextEdit, ContextEditAction
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef

ARCHITECTURE = Path(__file__).parents[1] / "ARCHITECTURE.md"
BEGIN, END = "<!-- agent-run:begin -->", "<!-- agent-run:end -->"
PHASES: tuple[str, ...] = get_args(AgentRun.model_fields["phase"].annotation)
LEG_OUTCOMES: tuple[type, ...] = get_args(get_args(LegOutcome)[0])

EDIT_ACTIONS: tuple[ContextEditAction, ...] = get_args(ContextEditAction)
ASKED_AT = datetime(2026, 1, 1, tzinfo=UTC)
LIMIT = Limit(tokens=100_000)
FIRST_RUN = AgentRun(
    run=RunRef(store_id="s", tenant="t", session="s", task_id="task-1", step_id="research-1", role="research"),
    config=AgentConfig(model="m", condense_model="m", window=50_000, trigger=37_500, target=18_750),
    limit=LIMIT,
    initial_limit=LIMIT,
)


class Transition(NamedTuple):
    """What happened to a run, and the state that it led to."""

    label: str
    source: AgentRun
    target: AgentRun


def _leg_outcomes(standing: LegState, first_number: int) -> Iterator[LegOutcome]:
    """One of each kind, with two subagents and two questions. Subagents are numbered from `first_number`."""
    yield AgentFinished(state=standing)
    yield ContextFull(state=standing, request_tokens=40_000)
    yield BudgetExhausted(state=standing, needed=Amount(tokens=1_000))
    yield OperatorActionRequired(state=standing, reason="the account has no credit")
    yield TurnLimitReached(state=standing)
    yield Interrupted(state=standing)
    yield SubagentsRequested(
        state=standing,
        orders=tuple(
            SubagentOrder(id=f"research-1.{number}", call_id=f"c{number}", role="research", title="", limit=LIMIT)
            for number in (first_number, first_number + 1)
        ),
    )
    yield ApprovalRequired(
        state=standing,
        questions=tuple(ActionQuestion(call_id=digest, tool="send", text="", digest=digest) for digest in ("a", "b")),
    )


def _compaction_outcome(run: AgentRun, status: CompactionStatus) -> CompactionOutcome:
    return CompactionOutcome(
        compaction_id="c1",
        status=status,
        strategy="window",
        tokens_before=40_000,
        tokens_after=18_000,
        covered=10,
        passages=3,
        totals=run.totals,
    )


def _after_leg(run: AgentRun) -> Iterator[tuple[str, AgentRun]]:
    """The states after a leg without a turn, and after one with a turn."""
    for turns in (run.totals.turns, run.totals.turns + 1):
        for outcome in _leg_outcomes(LegState(totals=RunUsage(turns=turns)), len(run.subagent_orders)):
            yield type(outcome).__name__, run.after_leg(outcome)


def _after_compaction(run: AgentRun) -> Iterator[tuple[str, AgentRun]]:
    for status in CompactionStatus:
        yield status.value, run.after_compaction(_compaction_outcome(run, status))


def _after_action(run: AgentRun) -> Iterator[tuple[str, AgentRun]]:
    """Every outcome of what the workflow does next, and the state after it."""
    match run.get_next_action():
        case RunLeg():
            yield from _after_leg(run)
        case CompactContext():
            yield from _after_compaction(run)
        case RequestBudget():
            yield "grant", run.after_grant(Amount(tokens=1_000))
        case StartSubagents(orders=(order, *others)):
            back = SubagentResult(id=order.id, call_id=order.call_id, partial=False)
            yield "SubagentResult" if others else "last SubagentResult", run.after_subagent(back, Amount())
        case RequestApproval(questions=(question, *others)):
            decision = ActionDecision(digest=question.digest, allowed=True)
            yield "ActionDecision" if others else "last ActionDecision", run.after_decision(decision)
        case FinishRun():
            yield "reopen_run", run.reopen_run(LIMIT)
        case _ as action:
            raise AssertionError(f"a run in phase {run.phase} waits for nothing: {action}")


def _after_interventions(run: AgentRun) -> Iterator[tuple[str, AgentRun]]:
    """The states after what can come in every phase but the last: an end, and edits that lead to another phase."""
    yield "finish_partial", run.finish_partial("a person denied it more")
    moved: list[tuple[str, AgentRun]] = []
    for name in EDIT_ACTIONS:
        edit = ContextEdit(id=run.next_edit_id, agent=run.run.step_id, action=name, requested_at=ASKED_AT)
        waiting = run.with_edit(edit)
        if not isinstance(waiting.get_next_action(), ApplyContextEdit):
            raise AssertionError(f"an edit must come first in phase {run.phase}")
        done = waiting.after_edit(edit, EditOutcome(state="done")).replace(context_edits=())
        if done.phase != run.phase:
            moved.append((f"{name} edit", done))
    yield from moved if len(moved) < len(EDIT_ACTIONS) else [("any edit", moved[0][1])]


def _state_key(run: AgentRun) -> tuple[str, int, int, int]:
    """States that differ in nothing else have the same transitions."""
    return run.phase, run.futile_compactions, min(2, len(run.open_orders)), len(run.questions)


def explore_transitions() -> tuple[Transition, ...]:
    """Every transition between states that differ in phase, compactions without a turn, or answers that are missing."""
    known, pending, found = {_state_key(FIRST_RUN)}, [FIRST_RUN], list[Transition]()
    while pending:
        run = pending.pop(0)
        interventions = () if isinstance(run.get_next_action(), FinishRun) else _after_interventions(run)
        for label, target in (*_after_action(run), *interventions):
            found.append(Transition(label, run, target))
            if (key := _state_key(target)) not in known:
                known.add(key)
                pending.append(target)
    return tuple(found)


def group_labels(transitions: Iterable[Transition]) -> dict[tuple[str, str], list[str]]:
    """The labels of the edges by their two phases.

    An event that leads to another phase after several compactions without a turn says after how many.
    """
    targets: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for label, source, target in transitions:
        least = targets[source.phase, label]
        least[target.phase] = min(source.futile_compactions, least.get(target.phase, source.futile_compactions))
    edges: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (source, label), by_target in targets.items():
        for target, futile in by_target.items():
            suffix = f" after {futile} compactions without a turn" if futile and len(by_target) > 1 else ""
            edges[source, target].append(f"{label}{suffix}")
    return edges


def _wrap(label: str) -> str:
    return "<br/>".join(textwrap.wrap(label, 40, break_long_words=False))


def render_agent_run_diagram() -> str:
    """The diagram as a fenced block of Mermaid.

    Raises:
        AssertionError: a phase or a kind of outcome is not in it.
    """
    transitions = explore_transitions()
    runs = [FIRST_RUN, *(transition.target for transition in transitions)]
    actions = {run.phase: type(run.get_next_action()).__name__ for run in runs}
    labels = {transition.label for transition in transitions}
    expected = {*(outcome.__name__ for outcome in LEG_OUTCOMES), *(status.value for status in CompactionStatus)}
    if missing := {*PHASES} - {*actions} | (expected - labels):
        raise AssertionError(f"the exploration of AgentRun did not meet {', '.join(sorted(missing))}")
    edges = group_labels(transitions)
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        *(f'  state "{phase}: {actions[phase]}" as {phase}' for phase in PHASES),
        f"  [*] --> {FIRST_RUN.phase}",
        *(
            f"  {source} --> {target}: {_wrap(', '.join(edges[source, target]))}"
            for source in PHASES
            for target in PHASES
            if (source, target) in edges
        ),
        "```",
    ]
    return "\n".join(lines)


def replace_diagram(page: str) -> str:
    """The page with the diagram of today between its markers."""
    between = re.compile(f"(?<={re.escape(BEGIN)}\n).*?(?={re.escape(END)})", re.DOTALL)
    return between.sub(lambda _: f"{render_agent_run_diagram()}\n", page)


def main() -> None:
    """Update ARCHITECTURE.md."""
    ARCHITECTURE.write_text(replace_diagram(ARCHITECTURE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
