import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.agent_run import (
    MAX_FUTILE_COMPACTIONS,
    MAX_LISTED_COMPACTIONS,
    AgentRun,
    ApplyContextEdit,
    CompactContext,
    FinishRun,
    RequestApproval,
    RequestBudget,
    RunLeg,
    StartSubagents,
)
from waystation.agents.leg import (
    AgentConfig,
    AgentFinished,
    BudgetExhausted,
    ContextFull,
    Interrupted,
    LegOutcome,
    LegState,
    OperatorActionRequired,
    TurnLimitReached,
)
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.usage import Usage

TERMS = AgentConfig(model="m", condense_model="c", window=50_000, trigger=37_500, target=18_750)
REF = RunRef(store_id="s", tenant="t", session="s", task_id="task-1", step_id="research-1", role="research")
FRESH = AgentRun(run=REF, config=TERMS, limit=Limit(tokens=30_000), initial_limit=Limit(tokens=30_000))


def after_turns(turns: int, *notes: str, scale: float = 1.0) -> LegState:
    totals = RunUsage(usage=Usage(input=1_000 * turns), turns=turns, cost_micro_usd=7 * turns)
    return LegState(totals=totals, token_ratio=scale, notes=notes)


def compaction(status: CompactionStatus, turns: int = 0, *notes: str) -> CompactionOutcome:
    return CompactionOutcome(
        compaction_id="c1",
        status=status,
        strategy="window",
        tokens_before=40_000,
        tokens_after=18_000,
        covered=10,
        passages=3,
        totals=after_turns(turns).totals,
        notes=notes,
    )


def test_a_fresh_run_starts_with_its_first_leg() -> None:
    move = FRESH.get_next_action()
    assert isinstance(move, RunLeg)
    assert (move.request.leg, move.request.limit, move.request.run, move.request.token_ratio) == (
        1,
        Limit(tokens=30_000),
        REF,
        1.0,
    )


def test_a_leg_that_finished_delivers() -> None:
    run = FRESH.after_leg(AgentFinished(state=after_turns(3)))
    assert run.get_next_action() == FinishRun(partial=False)
    assert (run.totals.turns, run.leg) == (3, 2)


def test_a_leg_that_finished_without_a_result_delivers_what_there_is_and_says_why() -> None:
    run = FRESH.after_leg(AgentFinished(state=after_turns(3), partial=True, reason="the model refused to go on"))
    assert run.get_next_action() == FinishRun(partial=True, reason="the model refused to go on")


def test_a_full_context_is_compacted_and_the_next_leg_goes_on_with_the_scale() -> None:
    full = FRESH.after_leg(ContextFull(state=after_turns(5, scale=1.3), request_tokens=38_000))
    assert full.get_next_action() == CompactContext(request_tokens=38_000)
    move = full.after_compaction(compaction(CompactionStatus.COMPRESSED, 5)).get_next_action()
    assert isinstance(move, RunLeg)
    assert (move.request.leg, move.request.token_ratio) == (2, 1.3)


def test_a_spent_budget_asks_for_what_one_call_needs_and_beyond_it_for_as_much_as_the_run_started_with() -> None:
    small = FRESH.after_leg(BudgetExhausted(state=after_turns(5), needed=Amount(tokens=900)))
    large = FRESH.after_leg(BudgetExhausted(state=after_turns(5), needed=Amount(tokens=45_000)))
    assert (small.get_next_action(), large.get_next_action()) == (
        RequestBudget(amount=Amount(tokens=30_900)),
        RequestBudget(amount=Amount(tokens=75_000)),
    )


def test_a_grant_raises_the_limit_and_lets_the_run_go_on() -> None:
    move = (
        FRESH.after_leg(BudgetExhausted(state=after_turns(5), needed=Amount(tokens=900)))
        .after_grant(Amount(tokens=12_000))
        .get_next_action()
    )
    assert isinstance(move, RunLeg)
    assert (move.request.leg, move.request.limit) == (2, Limit(tokens=42_000))


def test_a_provider_that_makes_no_more_calls_halts_the_run_until_somebody_answered_and_no_money_is_asked_for() -> None:
    halted = FRESH.after_leg(OperatorActionRequired(state=after_turns(2), reason="the account has no credit"))
    assert (halted.get_next_action(), halted.halt_reason) == (
        RequestBudget(amount=Amount()),
        "the account has no credit",
    )
    goes_on = halted.after_grant(Amount())
    assert (goes_on.phase, goes_on.halt_reason, goes_on.limit) == ("running", "", FRESH.limit)
    assert (
        halted.finish_partial("a person denied it more").reason == "a person denied it more; the account has no credit"
    )
    assert halted.finish_partial(halted.halt_reason).reason == halted.halt_reason
    move = goes_on.get_next_action()
    assert isinstance(move, RunLeg)
    assert move.request.leg == 2


def test_a_leg_that_reached_its_turns_or_yielded_is_followed_by_the_next() -> None:
    run = FRESH.after_leg(TurnLimitReached(state=after_turns(12))).after_leg(Interrupted(state=after_turns(14)))
    move = run.get_next_action()
    assert isinstance(move, RunLeg)
    assert move.request.leg == 3


def test_a_compaction_that_made_no_room_ends_the_run_and_names_its_status() -> None:
    full = FRESH.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    assert full.after_compaction(compaction(CompactionStatus.CANNOT_FIT, 5)).get_next_action() == FinishRun(
        partial=True, reason="the agent's context cannot be made smaller (CANNOT_FIT)"
    )


def test_a_compaction_that_is_blocked_is_tried_again_a_few_times_and_then_the_run_ends_and_names_the_hook() -> None:
    run = FRESH.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    for _ in range(MAX_FUTILE_COMPACTIONS):
        assert run.get_next_action() == CompactContext(request_tokens=38_000)
        run = run.after_compaction(
            compaction(CompactionStatus.BLOCKED, 5, "A hook failed: compaction_before (x) answered 500.")
        )
    assert run.get_next_action() == FinishRun(
        partial=True,
        reason="the agent's context cannot be compacted: A hook failed: compaction_before (x) answered 500.",
    )
    assert (len(run.compactions), run.committed_compaction_count) == (MAX_FUTILE_COMPACTIONS, 0)


def test_a_blocked_compaction_that_is_let_through_the_next_time_goes_on() -> None:
    run = FRESH.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    run = run.after_compaction(compaction(CompactionStatus.BLOCKED, 5)).after_compaction(
        compaction(CompactionStatus.COMPRESSED, 5)
    )
    assert isinstance(run.get_next_action(), RunLeg)


def test_compactions_without_a_turn_between_them_end_the_run() -> None:
    run = FRESH.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    for _ in range(MAX_FUTILE_COMPACTIONS):
        assert isinstance(run.get_next_action(), CompactContext)
        run = run.after_compaction(compaction(CompactionStatus.TRUNCATED, 5))
        run = run.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    assert run.get_next_action() == FinishRun(
        partial=True, reason="3 compactions in a row did not free enough space for a turn"
    )
    assert len(run.compactions) == MAX_FUTILE_COMPACTIONS


def test_a_run_lists_its_newest_compactions_and_adds_up_all_others() -> None:
    run = FRESH
    for turn in range(1, 41):
        run = run.after_leg(ContextFull(state=after_turns(turn), request_tokens=38_000))
        run = run.after_compaction(compaction(CompactionStatus.COMPRESSED, turn, f"Note {turn}."))
    assert len(run.compactions) == MAX_LISTED_COMPACTIONS
    assert run.compactions[-1].notes == ("Note 40.",)
    assert (run.all_compactions.count, run.committed_compaction_count) == (40, 40)
    assert run.all_compactions.passages == 40 * run.compactions[0].passages
    assert run.notes[-1] == "Note 40."
    assert len(run.model_dump_json()) < 12_000


def test_a_turn_between_compactions_lets_them_go_on_for_as_long_as_there_is_work() -> None:
    run = FRESH
    for turn in range(1, 20):
        run = run.after_leg(ContextFull(state=after_turns(turn), request_tokens=38_000))
        assert isinstance(run.get_next_action(), CompactContext)
        run = run.after_compaction(compaction(CompactionStatus.COMPRESSED, turn))
    assert isinstance(run.get_next_action(), RunLeg)


def test_notes_of_legs_and_compactions_are_kept_once_in_order() -> None:
    run = FRESH.after_leg(TurnLimitReached(state=after_turns(1, "memory was down", "slow")))
    run = run.after_leg(ContextFull(state=after_turns(2, "memory was down"), request_tokens=1))
    run = run.after_compaction(compaction(CompactionStatus.COMPRESSED, 2, "passages wait", "slow"))
    assert run.notes == ("memory was down", "slow", "passages wait")


def test_a_failed_leg_is_settled_by_what_the_store_says() -> None:
    run = FRESH.with_settled_usage(after_turns(7).totals).finish_partial("no key")
    assert (run.totals.turns, run.get_next_action()) == (7, FinishRun(partial=True, reason="no key"))


def test_a_run_survives_being_stored_in_any_phase() -> None:
    full = FRESH.after_leg(ContextFull(state=after_turns(5), request_tokens=38_000))
    spent = FRESH.after_leg(BudgetExhausted(state=after_turns(5), needed=Amount(tokens=900)))
    for run in (
        FRESH,
        full,
        full.after_compaction(compaction(CompactionStatus.MASKED, 5)),
        spent,
        spent.finish_partial("x"),
    ):
        assert AgentRun.model_validate_json(run.model_dump_json()) == run


ENDINGS = st.sampled_from(["finished", "full", "spent", "turns", "yielded"])


@given(st.data())
def test_whatever_the_legs_say_the_run_never_loops_without_turns_or_money(data: st.DataObject) -> None:
    """A world that never gives a turn, and gives money at most five times: the run must come to its end."""
    run, grants, moves = FRESH, 0, 0
    while not isinstance(move := run.get_next_action(), FinishRun):
        moves += 1
        assert moves < 60
        match move:
            case RunLeg():
                assert move.request.leg == run.leg
                run = run.after_leg(_ended(data.draw(st.sampled_from(["full", "spent"])), run.totals.turns))
            case CompactContext():
                run = run.after_compaction(compaction(data.draw(st.sampled_from(CompactionStatus)), run.totals.turns))
            case RequestBudget():
                assert move.amount.tokens > 0
                grants += 1
                run = run.after_grant(move.amount) if grants <= 5 else run.finish_partial("denied")
            case ApplyContextEdit() | StartSubagents() | RequestApproval():
                pytest.fail("nobody asked for an edit")
    assert move.partial
    assert move.reason


@given(st.lists(st.tuples(ENDINGS, st.integers(0, 3)), max_size=30))
def test_each_leg_has_a_number_of_its_own_and_totals_only_grow(legs: list[tuple[str, int]]) -> None:
    run, turns, numbers = FRESH, 0, list[int]()
    for ending, worked in legs:
        match run.get_next_action():
            case RunLeg(request=request):
                numbers.append(request.leg)
                turns += worked
                run = run.after_leg(_ended(ending, turns))
            case CompactContext():
                run = run.after_compaction(compaction(CompactionStatus.COMPRESSED, turns))
            case RequestBudget(amount=amount):
                run = run.after_grant(amount)
            case ApplyContextEdit() | StartSubagents() | RequestApproval():
                pytest.fail("nobody asked for an edit")
            case FinishRun():
                break
        assert run.totals.turns == turns
    assert numbers == list(range(1, len(numbers) + 1))


def _ended(kind: str, turns: int) -> LegOutcome:
    standing = after_turns(turns)
    match kind:
        case "finished":
            return AgentFinished(state=standing)
        case "full":
            return ContextFull(state=standing, request_tokens=38_000)
        case "spent":
            return BudgetExhausted(state=standing, needed=Amount(tokens=500))
        case "turns":
            return TurnLimitReached(state=standing)
        case _:
            return Interrupted(state=standing)
