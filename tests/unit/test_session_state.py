import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import JsonValue, ValidationError

from waystation.domain import session_state
from waystation.domain.errors import Overdrawn
from waystation.domain.ledger import Account
from waystation.domain.session import Answer, Ask, Raised, SessionState, Settlement

EMPTY = SessionState(account=Account(limit=100_000))


def ask(number: int = 1, tokens: int = 10_000, task_id: str = "task-1") -> Ask:
    return Ask(task_id=task_id, ask_id=f"{task_id}/research-1-{number}", tokens=tokens)


def test_a_task_is_admitted_with_its_whole_budget_reserved_or_not_at_all() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    assert (state.account.reserved, state.open_tasks) == ({"task-1": 60_000}, ("task-1",))
    with pytest.raises(Overdrawn):
        session_state.admitted(state, "task-2", 60_000)


def test_a_task_that_is_over_gives_back_what_it_did_not_spend() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    state = session_state.settled(state, Settlement(task_id="task-1", spent=25_000))
    assert state == SessionState(account=Account(limit=100_000, spent=25_000))


def test_a_task_that_did_not_start_gives_back_everything() -> None:
    assert session_state.withdrawn(session_state.admitted(EMPTY, "task-1", 60_000), "task-1") == EMPTY


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=5))
def test_a_task_settles_once_whether_it_told_its_end_or_was_found_dead(told: list[int]) -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    for spent in told:
        state = session_state.settled(state, Settlement(task_id="task-1", spent=spent))
    assert state.account == Account(limit=100_000, spent=told[0])


def test_an_answered_ask_is_remembered_so_that_it_is_not_answered_twice() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    state, answer = session_state.answered(state, ask())
    assert answer == Answer(ask_id=ask().ask_id, tokens=10_000)
    assert (state.account.reserved, state.answered) == ({"task-1": 70_000}, (ask().ask_id,))


def test_a_session_gives_all_that_is_asked_for_or_nothing() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    state, answer = session_state.answered(state, ask(tokens=40_001))
    assert answer.tokens == 0
    state, answer = session_state.answered(state, ask(2, tokens=40_000))
    assert (answer.tokens, state.account.unreserved) == (40_000, 0)


def test_a_session_without_a_limit_gives_nothing() -> None:
    state = session_state.admitted(SessionState(), "task-1", 60_000)
    after, answer = session_state.answered(state, ask())
    assert (answer.tokens, after.account) == (0, state.account)


def test_a_task_that_holds_nothing_is_given_nothing() -> None:
    after, answer = session_state.answered(EMPTY, ask(task_id="task-gone"))
    assert (answer.tokens, after.account) == (0, EMPTY.account)


def test_the_newest_answered_asks_are_remembered() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    for number in range(session_state.REMEMBERED_ASKS + 5):
        state, _ = session_state.answered(state, ask(number, tokens=1))
    assert len(state.answered) == session_state.REMEMBERED_ASKS
    assert state.answered[-1].endswith(f"-{session_state.REMEMBERED_ASKS + 4}")


def test_a_grant_of_a_person_raises_limit_and_reservation_together() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    raised = session_state.raised(state, Raised(task_id="task-1", tokens=20_000))
    assert raised.account == Account(limit=120_000, reserved={"task-1": 80_000})
    assert session_state.raised(state, Raised(task_id="task-gone", tokens=20_000)) == state


def test_a_grant_counts_also_where_the_limit_was_set_under_what_is_held() -> None:
    state = session_state.limited(session_state.admitted(EMPTY, "task-1", 60_000), {"tokens": 1_000})
    raised = session_state.raised(state, Raised(task_id="task-1", tokens=20_000))
    assert raised.account == Account(limit=21_000, reserved={"task-1": 80_000})


@pytest.mark.parametrize("limit", [0, 5_000, None])
def test_a_limit_is_set_or_taken_away_and_leaves_what_is_spent_and_held(limit: int | None) -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    assert session_state.limited(state, {"tokens": limit}).account == Account(limit=limit, reserved={"task-1": 60_000})


@pytest.mark.parametrize(
    "sent", [None, 5_000, "5000", [], {}, {"tokens": -1}, {"tokens": "5"}, {"tokens": True}, {"tokens": 1, "by": "x"}]
)
def test_a_malformed_limit_is_refused(sent: JsonValue) -> None:
    with pytest.raises(ValidationError):
        session_state.limited(EMPTY, sent)


def test_a_session_survives_continue_as_new() -> None:
    state, _ = session_state.answered(session_state.admitted(EMPTY, "task-1", 60_000), ask())
    assert SessionState.model_validate_json(state.model_dump_json()) == state


def test_what_people_see_of_a_session() -> None:
    state = session_state.admitted(EMPTY, "task-1", 60_000)
    assert session_state.details(state) == snapshot("""\
**Session** 1 open tasks

**Budget** 100,000 tokens; 0 spent, 60,000 reserved

- `task-1`\
""")
    assert "no limit; 0 spent" in session_state.details(SessionState())
