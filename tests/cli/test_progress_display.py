"""What an agent does at this moment, in words; and what a task has spent by the store, while its legs go on."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import RenderableType

from tests.support.progress_values import NOON, make_step_progress
from tests.support.view_values import PAUSED_VIEW, VIEWED_PROGRESS
from waystation.agents.agent_status import AgentStatus
from waystation.budgets.budget import RunUsage
from waystation.cli import follow
from waystation.cli.render import format_agent_activity
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.tasks.progress import apply_stored_usage
from waystation.tasks.task import BudgetProgress, TaskPhase
from waystation.tasks.view import TaskView

WAITING = AgentStatus(agent="research-1", what="model", turn=4, since=NOON, seen=NOON + timedelta(seconds=3700))


@pytest.mark.parametrize(
    ("doing", "seconds", "said"),
    [
        (WAITING, 12, "research-1: turn 4, waiting for the model for 12 s"),
        (WAITING, 185, "research-1: turn 4, waiting for the model for 3 min 5 s"),
        (
            WAITING,
            3_731,
            "research-1: turn 4, waiting for the model for 1 h 2 min; no heartbeat for 31 s",
        ),
        (AgentStatus(agent="plan", what="model", since=NOON), 0, "plan: waiting for the model for 0 s"),
        (
            AgentStatus(agent="r-1.2", what="tool", turn=1_204, tool="fs__read", since=NOON),
            -5,
            "r-1.2: turn 1,204, calling fs__read for 0 s",
        ),
        (AgentStatus(agent="w", what="between", turn=2, since=NOON), 1, "w: turn 2, working for 1 s"),
    ],
)
def test_what_an_agent_does_is_one_sentence(doing: AgentStatus, seconds: int, said: str) -> None:
    assert doing.text(NOON + timedelta(seconds=seconds)) == said


def test_beside_what_it_does_stands_what_it_has_spent() -> None:
    view = PAUSED_VIEW.replace(activity=(WAITING, AgentStatus(agent="plan", what="model", since=NOON)))
    assert format_agent_activity(view, NOON) == [
        "research-1: turn 4, waiting for the model for 0 s; 29,500 of 30,000 tokens spent so far",
        "plan: waiting for the model for 0 s",
    ]


def test_an_agent_that_makes_room_says_so_also_while_nothing_is_heard_of_it() -> None:
    (asking, writing) = VIEWED_PROGRESS.steps
    steps = (asking.replace(state="compacting"), writing)
    view = TaskView.from_progress(VIEWED_PROGRESS.replace(steps=steps))
    assert format_agent_activity(view, NOON) == ["research-1: compacting its context"]
    assert len(format_agent_activity(view.replace(activity=(WAITING,)), NOON)) == 1


def test_a_task_on_its_way_says_since_when_and_when_it_was_last_heard_of() -> None:
    begun = PAUSED_VIEW.replace(submitted_at=NOON - timedelta(minutes=2))
    later = NOON + timedelta(seconds=3_704)
    assert follow.format_liveness(PAUSED_VIEW, NOON) == "paused"
    assert follow.format_liveness(begun.replace(activity=(WAITING,)), later) == (
        "paused, submitted 1 h 3 min ago; last sign of activity 4 s ago"
    )
    assert follow.format_liveness(begun.replace(phase=TaskPhase.DONE), NOON) == ""


def test_where_nothing_can_be_redrawn_a_sign_of_life_is_printed_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    clock = [NOON]
    monkeypatch.setattr(follow, "print_message", said.append)
    monkeypatch.setattr(follow, "utc_now", lambda: clock[0])
    screen = follow.TaskScreen()
    for minutes in range(0, 25, 4):
        clock[0] = NOON + timedelta(minutes=minutes)
        screen.show(PAUSED_VIEW.replace(activity=(WAITING,)))
    signs = [line for line in said if "waiting for the model" in line]
    assert [line.split("model for ")[1].split(";")[0] for line in signs] == ["12 min 0 s", "24 min 0 s"]
    assert said[-2] == "paused; last sign of activity 0 s ago; 41,200 of 200,000 tokens spent"


async def test_a_task_in_which_nothing_happens_is_still_looked_at_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def the_same(_: str) -> TaskView:
        return PAUSED_VIEW

    async with await Client.connect(Settings(home=tmp_path / "home")) as client:
        monkeypatch.setattr(client, "get_task", the_same)
        looks = client.watch("task-1", again=0)
        assert [await anext(looks), await anext(looks)] == [PAUSED_VIEW, PAUSED_VIEW]
        await looks.aclose()


async def test_while_nothing_changes_the_pauses_between_looks_grow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = PAUSED_VIEW.replace(phase=TaskPhase.WORKING)
    views = iter([*[PAUSED_VIEW] * 8, *[changed] * 2, PAUSED_VIEW.replace(phase=TaskPhase.DONE)])
    pauses: list[float] = []

    async def get_next(_: str) -> TaskView:
        return next(views)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async with await Client.connect(Settings(home=tmp_path / "home")) as client:
        monkeypatch.setattr(client, "get_task", get_next)
        monkeypatch.setattr("waystation.client.client.asyncio.sleep", pause)
        assert [view.phase async for view in client.watch("task-1")][-1] is TaskPhase.DONE
        monkeypatch.undo()
    assert pauses == [0.5, 0.75, 1.125, 1.6875, 2.53125, 3.0, 3.0, 0.5]


def test_a_screen_that_is_redrawn_shows_time_go_by() -> None:
    drawn: list[RenderableType] = []
    screen = follow.TaskScreen()
    screen.show(PAUSED_VIEW)
    drawn.append(screen._screen())  # pyright: ignore[reportPrivateUsage]: what the live view calls
    assert drawn != [""]


totals = st.builds(
    RunUsage,
    usage=st.builds(Usage, input=st.integers(0, 10_000), output=st.integers(0, 10_000)),
    possibly_billed=st.integers(0, 5_000),
)


@given(known=totals, more=totals, reserved=st.integers(0, 100_000))
def test_what_is_shown_as_spent_is_never_less_than_a_leg_has_told_and_what_is_held_stays(
    known: RunUsage, more: RunUsage, reserved: int
) -> None:
    """The store has all that the workflow counts, but for calls that it takes to be answered yet."""
    limit, now = Limit(tokens=200_000), RunUsage(usage=known.usage + more.usage, possibly_billed=more.possibly_billed)
    progress = VIEWED_PROGRESS.replace(
        phase=TaskPhase.WORKING,
        totals=known,
        budget=BudgetProgress(limit=limit, spent=known.spent, reserved=Amount(tokens=reserved)),
        steps=(
            make_step_progress("research-1", "working").replace(spent=known.spent),
            make_step_progress("writing", "waiting"),
        ),
    )
    seen = apply_stored_usage(progress, {"research-1": now})
    assert seen.budget.spent == seen.totals.spent
    assert seen.budget.spent.tokens >= max(known.spent.tokens, now.spent.tokens)
    assert seen.steps[0].spent.tokens == max(known.spent.tokens, now.spent.tokens)
    assert seen.budget.reserved.tokens == max(0, reserved + known.spent.tokens - seen.budget.spent.tokens)
    assert seen.steps[1] == progress.steps[1]
