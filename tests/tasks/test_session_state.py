import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import JsonValue, ValidationError

from tests.support.task_model import make_task_config
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.deferred_signals import DeferredSignal, defer_until_next_execution
from waystation.kernel.errors import BadInput, InsufficientBudgetError
from waystation.kernel.refs import TaskRef
from waystation.tasks import session
from waystation.tasks.details import build_limit_fields
from waystation.tasks.session import (
    AdmissionResult,
    ApprovedTaskGrant,
    SessionBudgetAnswer,
    SessionBudgetRequest,
    SessionState,
    SessionWorkflowInput,
    TaskSettlement,
)

EMPTY = SessionState(account=BudgetAccount(limit=Limit(tokens=100_000)))
SIXTY = Limit(tokens=60_000)


def ask(number: int = 1, tokens: int = 10_000, task_id: str = "task-1") -> SessionBudgetRequest:
    return SessionBudgetRequest(
        task_id=task_id, request_id=f"{task_id}/research-1-{number}", amount=Amount(tokens=tokens)
    )


def answered(state: SessionState, asked: SessionBudgetRequest) -> tuple[SessionState, SessionBudgetAnswer]:
    """To an ask that was not answered before."""
    after, answer = session.answer_budget_request(state, asked)
    assert answer is not None
    return after, answer


def test_a_task_is_admitted_with_its_whole_budget_reserved_or_not_at_all() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    assert (state.account.reserved, state.open_tasks) == ({"task-1": Amount(tokens=60_000)}, ("task-1",))
    with pytest.raises(InsufficientBudgetError):
        session.admit_task(state, "task-2", SIXTY)


def test_a_session_with_as_many_open_tasks_as_it_may_have_fits_into_a_payload_and_takes_no_more() -> None:
    ids = [f"task-{number:016x}" for number in range(session.MAX_OPEN_TASKS)]
    state = SessionState(
        account=BudgetAccount(limit=Limit(), reserved=dict.fromkeys(ids, Amount(tokens=10**9, micro_usd=10**9))),
        open_tasks=tuple(ids),
        answered=tuple(
            f"{ids[0]}/research-1.subagent-12-{number}" for number in range(session.MAX_REMEMBERED_REQUESTS)
        ),
    )
    asks = DeferredSignal(signal="ask_budget", argument=ask().model_dump(mode="json"), readable=True)
    held: tuple[DeferredSignal, ...] | None = ()
    longest = held
    while held is not None:
        longest, held = held, defer_until_next_execution(held, asks)
    start = SessionWorkflowInput(
        store_id="s" * 32, tenant="t" * 64, session="s" * 64, state=state, deferred_signals=longest
    )
    assert len(start.model_dump_json()) < 256_000
    ref = TaskRef(store_id="s", tenant="t", session="s", task_id="task-more")
    more = AdmissionResult(
        ref=ref, config=make_task_config(), title="", documents=0, finished=False, search_attributes=False
    )
    with pytest.raises(BadInput, match="has 1,000 open tasks, which is the maximum"):
        session.admit_or_reopen_task(state, more)


def test_a_task_that_is_over_gives_back_what_it_did_not_spend() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    state = session.settle_task(state, TaskSettlement(task_id="task-1", spent=Amount(tokens=25_000)))
    assert state == SessionState(account=BudgetAccount(limit=Limit(tokens=100_000), spent=Amount(tokens=25_000)))


def test_a_task_that_did_not_start_gives_back_everything() -> None:
    assert session.release_unstarted_task(session.admit_task(EMPTY, "task-1", SIXTY), "task-1") == EMPTY


@given(st.lists(st.integers(0, 60_000), min_size=1, max_size=5))
def test_a_task_settles_once_whether_it_told_its_end_or_was_found_dead(told: list[int]) -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    for spent in told:
        state = session.settle_task(state, TaskSettlement(task_id="task-1", spent=Amount(tokens=spent)))
    assert state.account == BudgetAccount(limit=Limit(tokens=100_000), spent=Amount(tokens=told[0]))


def test_an_answered_ask_is_remembered_and_not_answered_twice() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    state, answer = answered(state, ask())
    assert answer == SessionBudgetAnswer(
        request_id=ask().request_id,
        amount=Amount(tokens=10_000),
        used=Amount(tokens=70_000),
        limit=Limit(tokens=100_000),
    )
    assert (state.account.reserved, state.answered) == ({"task-1": Amount(tokens=70_000)}, (ask().request_id,))
    assert session.answer_budget_request(state, ask()) == (state, None)


def test_a_session_gives_all_that_is_asked_for_or_nothing() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    state, answer = answered(state, ask(tokens=40_001))
    assert answer.amount == Amount()
    state, answer = answered(state, ask(2, tokens=40_000))
    assert (answer.amount.tokens, state.account.unreserved.tokens) == (40_000, 0)


def test_a_session_without_a_limit_gives_nothing() -> None:
    state = session.admit_task(SessionState(), "task-1", SIXTY)
    after, answer = answered(state, ask())
    assert (answer.amount, after.account) == (Amount(), state.account)


def test_a_task_that_holds_nothing_is_given_nothing() -> None:
    after, answer = answered(EMPTY, ask(task_id="task-gone"))
    assert (answer.amount, after.account) == (Amount(), EMPTY.account)


def test_the_newest_answered_asks_are_remembered() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    for number in range(session.MAX_REMEMBERED_REQUESTS + 5):
        state, _ = answered(state, ask(number, tokens=1))
    assert len(state.answered) == session.MAX_REMEMBERED_REQUESTS
    assert state.answered[-1].endswith(f"-{session.MAX_REMEMBERED_REQUESTS + 4}")


def test_a_grant_of_a_person_raises_limit_and_reservation_together() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    raised = session.apply_task_grant(state, ApprovedTaskGrant(task_id="task-1", amount=Amount(tokens=20_000)))
    assert raised.account == BudgetAccount(limit=Limit(tokens=120_000), reserved={"task-1": Amount(tokens=80_000)})
    assert (
        session.apply_task_grant(state, ApprovedTaskGrant(task_id="task-gone", amount=Amount(tokens=20_000))) == state
    )


def test_a_grant_counts_also_where_the_limit_was_set_under_what_is_held() -> None:
    state = session.with_limit(session.admit_task(EMPTY, "task-1", SIXTY), {"tokens": 1_000})
    raised = session.apply_task_grant(state, ApprovedTaskGrant(task_id="task-1", amount=Amount(tokens=20_000)))
    assert raised.account == BudgetAccount(limit=Limit(tokens=21_000), reserved={"task-1": Amount(tokens=80_000)})


@pytest.mark.parametrize("limit", [0, 5_000, None])
def test_a_limit_is_set_or_taken_away_and_leaves_what_is_spent_and_held(limit: int | None) -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    assert session.with_limit(state, {"tokens": limit}).account == BudgetAccount(
        limit=Limit(tokens=limit), reserved={"task-1": Amount(tokens=60_000)}
    )


@pytest.mark.parametrize(
    "sent",
    [
        *(None, 5_000, "5000", [], {"tokens": -1}, {"tokens": "5"}, {"tokens": True}, {"tokens": 1, "by": "x"}),
        *({"usd": -1}, {"usd": "NaN"}, {"usd": "Infinity"}, {"usd": 0.1234567}, {"usd": 1e9}, {"usd": "two"}),
        *({"usd": [2]}, {"usd": True}, {"tokens": 5, "usd": ""}),
    ],
)
def test_a_malformed_limit_is_refused(sent: JsonValue) -> None:
    with pytest.raises(ValidationError):
        session.with_limit(EMPTY, sent)


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        ({"usd": 50}, Limit(tokens=100_000, micro_usd=50_000_000)),
        ({"usd": 0.1}, Limit(tokens=100_000, micro_usd=100_000)),
        ({"usd": "0.000001"}, Limit(tokens=100_000, micro_usd=1)),
        ({"tokens": 5, "usd": "2.50"}, Limit(tokens=5, micro_usd=2_500_000)),
        ({"tokens": 5, "usd": None}, Limit(tokens=5)),
        ({"tokens": None, "usd": None}, Limit()),
    ],
)
def test_a_limit_is_set_in_either_unit_or_both_taken_away_by_null_and_kept_where_it_is_left_out(
    sent: JsonValue, limit: Limit
) -> None:
    assert session.with_limit(EMPTY, sent).account.limit == limit


@given(st.none() | st.integers(0, 10**12), st.none() | st.integers(0, 10**13))
def test_a_limit_arrives_as_the_client_sends_it(tokens: int | None, micro_usd: int | None) -> None:
    limit = Limit(tokens=tokens, micro_usd=micro_usd)
    sent: JsonValue = json.loads(json.dumps(build_limit_fields(limit)))
    assert session.with_limit(EMPTY, sent).account.limit == limit


IN_DOLLARS = SessionState(account=BudgetAccount(limit=Limit(micro_usd=5_000_000)))
IN_BOTH = SessionState(account=BudgetAccount(limit=Limit(tokens=100_000, micro_usd=5_000_000)))


@pytest.mark.parametrize(
    ("state", "budget", "limited"),
    [
        (IN_DOLLARS, SIXTY, "$5.00"),
        (IN_BOTH, SIXTY, "100,000 tokens and $5.00"),
        (IN_BOTH, Limit(micro_usd=1), "100,000 tokens and $5.00"),
        (EMPTY, Limit(micro_usd=1), "100,000 tokens"),
    ],
)
def test_a_session_refuses_a_task_whose_budget_lacks_a_unit_that_it_is_limited_in(
    state: SessionState, budget: Limit, limited: str
) -> None:
    with pytest.raises(BadInput) as refused:
        session.admit_task(state, "task-1", budget)
    assert str(refused.value) == f"the session is limited to {limited}: give the task a --budget in the same unit"


def test_a_session_takes_a_task_that_is_limited_in_more_units_than_it_is() -> None:
    budget = Limit(tokens=60_000, micro_usd=2_000_000)
    for state in (SessionState(), EMPTY, IN_DOLLARS, IN_BOTH):
        assert session.admit_task(state, "task-1", budget).account.reserved == {"task-1": budget.amount}


def test_a_task_that_fits_in_one_unit_only_is_refused() -> None:
    with pytest.raises(
        InsufficientBudgetError,
        match=r"^task-1 asks for 60,000 tokens and \$6\.00, but the budget has only 100,000 tokens and \$5\.00 left$",
    ):
        session.admit_task(IN_BOTH, "task-1", Limit(tokens=60_000, micro_usd=6_000_000))


@pytest.mark.parametrize(
    ("asked", "given_out"),
    [
        (Amount(micro_usd=1_000_000), Amount(micro_usd=1_000_000)),
        (Amount(micro_usd=3_000_001), Amount()),
        (Amount(tokens=1, micro_usd=1), Amount()),
        (Amount(tokens=1), Amount()),
    ],
)
def test_a_session_gives_in_the_units_that_it_is_limited_in_all_of_it_or_nothing(
    asked: Amount, given_out: Amount
) -> None:
    state = session.admit_task(IN_DOLLARS, "task-1", Limit(micro_usd=2_000_000))
    after, answer = answered(state, SessionBudgetRequest(task_id="task-1", request_id="1", amount=asked))
    assert answer.amount == given_out
    assert after.account.total_reserved == state.account.total_reserved + given_out


def test_a_session_survives_continue_as_new() -> None:
    state, _ = answered(session.admit_task(EMPTY, "task-1", SIXTY), ask())
    assert SessionState.model_validate_json(state.model_dump_json()) == state


def test_what_people_see_of_a_session() -> None:
    state = session.admit_task(EMPTY, "task-1", SIXTY)
    assert session.render_session_details(state) == snapshot("""\
**Session** 1 open task

**Budget** 0 of 100,000 tokens spent, 60,000 tokens reserved

- `task-1`\
""")
    assert "0 tokens spent, 0 tokens reserved, no limit" in session.render_session_details(SessionState())


@pytest.mark.parametrize(
    ("limit", "asked", "advice"),
    [
        (Limit(tokens=31_269), Amount(tokens=70_000), "submit with --budget 31000 or less, or raise"),
        (Limit(tokens=1_500), Amount(tokens=70_000), ": raise the session's limit"),
        (Limit(micro_usd=1_259_000), Amount(micro_usd=2_000_000), "submit with --budget '$1.25' or less, or raise"),
        (
            Limit(tokens=31_269, micro_usd=1_259_000),
            Amount(tokens=70_000, micro_usd=500_000),
            "submit with --budget '31000+$0.50' or less, or raise",
        ),
    ],
)
def test_a_task_that_does_not_fit_is_told_what_would(limit: Limit, asked: Amount, advice: str) -> None:
    words = session.format_insufficient_budget(BudgetAccount(limit=limit), asked)
    assert advice in words
    assert words.endswith("raise the session's limit with `waystation session set SESSION --budget AMOUNT`")


def test_a_refusal_for_lack_of_budget_names_what_is_held_for_other_tasks() -> None:
    account = BudgetAccount(limit=Limit(tokens=200_000), spent=Amount(tokens=8_731)).reserve(
        "t", Amount(tokens=160_000)
    )
    assert session.format_insufficient_budget(account, Amount(tokens=70_000)).startswith(
        "the session has 31,269 of 200,000 tokens left, but the task asks for 70,000 tokens; the session's "
        "running tasks hold 160,000 tokens, and return what they do not spend. Wait until they have ended, "
        "submit with --budget 31000 or less"
    )
    assert "--budget 31000" not in session.format_insufficient_budget(account, Amount(tokens=70_000), again=True)
