import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.agents.planner import SUBMIT_PLAN
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.roles import Role
from waystation.planning.plan import (
    Plan,
    PlanChange,
    Step,
    anonymise_step_ids,
    apply_plan_change,
    build_standard_plan,
    compute_even_share,
    compute_plan_shares,
    find_plan_errors,
    find_share_errors,
)


def step(step_id: str, role: Role = "research", *needs: str, goal: str = "Find it.") -> Step:
    return Step(id=step_id, role=role, title="A step", goal=goal, needs=needs)


A, B = step("a"), step("b")
WEIGH, WRITE = step("weigh", "analysis", "a", "b"), step("write", "writing", "weigh")
GOOD = Plan(steps=(A, B, WEIGH, WRITE))


def test_a_good_plan_has_no_errors() -> None:
    assert find_plan_errors(GOOD) == ()


BAD = {
    "too few steps": ((A, step("write", "writing", "a")), "a plan has 3 to 12 steps, but this one has 2"),
    "too many steps": (
        (*(step(f"s{n}") for n in range(12)), step("write", "writing", *(f"s{n}" for n in range(12)))),
        "a plan has 3 to 12 steps, but this one has 13",
    ),
    "an id twice": ((A, A, step("weigh", "analysis", "a"), WRITE), "step id 'a' is used more than once"),
    "an unknown need": (
        (A, B, step("write", "writing", "a", "b", "c")),
        "step 'write' needs 'c', which is not a step of this plan",
    ),
    "no research": (
        (step("a", "analysis"), step("weigh", "analysis", "a"), WRITE),
        "a plan needs at least one research step",
    ),
    "no writing": (
        (A, B, step("w", "analysis", "a", "b")),
        "the last step, and only the last one, must have the role `writing`",
    ),
    "writing twice": (
        (A, step("w", "writing", "a"), step("write", "writing", "w")),
        "the last step, and only the last one, must have the role `writing`",
    ),
    "writing not last": (
        (A, step("w", "writing", "a"), B),
        "the last step, and only the last one, must have the role `writing`",
    ),
    "a circle": (
        (step("a", "research", "b"), step("b", "research", "a"), step("write", "writing", "a", "b")),
        "steps depend on each other in a cycle: a -> b -> a",
    ),
    "a step that needs itself": (
        (step("a", "research", "a"), B, step("write", "writing", "a", "b")),
        "steps depend on each other in a cycle: a -> a",
    ),
    "a step that nobody waits for": (
        (A, B, step("write", "writing", "a")),
        "step 'b' is not needed by a later step, so nothing would wait for it",
    ),
    "a step without a goal": ((A, step("b", goal="  "), WEIGH, WRITE), "step 'b' has no goal"),
    "the id of the planning": (
        (step("plan"), B, step("write", "writing", "plan", "b")),
        "step id 'plan' must have at most 40 lower-case letters, digits and hyphens, and begin with a letter; 'plan' "
        "and ids like 'revision-1' and 'review-1' are reserved",
    ),
}


@pytest.mark.parametrize(("steps", "error"), BAD.values(), ids=BAD.keys())
def test_what_keeps_a_plan_from_being_run_is_said(steps: tuple[Step, ...], error: str) -> None:
    assert error in find_plan_errors(Plan(steps=steps))


@pytest.mark.parametrize("bad", ["", "A", "a/b", "a b", "é", "-a", "`a`", "a\n", "a" * 41])
def test_an_id_that_could_break_other_ids_or_the_display_is_refused(bad: str) -> None:
    errors = find_plan_errors(Plan(steps=(step(bad), B, step("weigh", "analysis", bad, "b"), WRITE)))
    assert len(errors) == 1
    assert errors[0].startswith(f"step id {bad!r} must have at most 40 lower-case letters")


def test_a_plan_without_steps_is_refused_and_not_a_crash() -> None:
    assert len(find_plan_errors(Plan(steps=()))) == 3


def test_a_step_is_ready_when_everything_it_needs_is_done_and_starts_once() -> None:
    assert GOOD.list_ready_steps(frozenset(), frozenset()) == (A, B)
    assert GOOD.list_ready_steps(frozenset({"a"}), frozenset({"a", "b"})) == ()
    assert GOOD.list_ready_steps(frozenset({"a", "b"}), frozenset({"a", "b"})) == (WEIGH,)
    assert GOOD.list_ready_steps(frozenset({"a", "b", "weigh"}), frozenset({"a", "b", "weigh"})) == (WRITE,)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Research steps that may need earlier ones, and a writing step that needs all that nobody else needs."""
    count = draw(st.integers(2, 11))
    steps: list[Step] = []
    for number in range(count):
        needs = draw(st.sets(st.sampled_from([s.id for s in steps]))) if steps else set[str]()
        steps.append(step(f"s{number}", "research", *sorted(needs)))
    unneeded = [s.id for s in steps if not any(s.id in other.needs for other in steps)]
    return Plan(steps=(*steps, step("write", "writing", *unneeded)))


@given(plans())
def test_every_plan_without_errors_runs_to_its_end_with_the_writing_step_last(plan: Plan) -> None:
    assert find_plan_errors(plan) == ()
    done = list[str]()
    while ready := plan.list_ready_steps(frozenset(done), frozenset(done)):
        done += [s.id for s in ready]
    assert sorted(done) == sorted(s.id for s in plan.steps)
    assert done[-1] == "write"


def test_the_standard_plan_can_be_run_and_asks_the_question_everywhere() -> None:
    plan = build_standard_plan("Why is the sky blue?")
    assert find_plan_errors(plan) == ()
    assert all("Why is the sky blue?" in step.goal for step in plan.steps)


def test_no_goal_enters_the_history() -> None:
    assert all(step.goal == "" for step in build_standard_plan("A private matter").without_goals().steps)
    assert "private" not in build_standard_plan("A private matter").without_goals().model_dump_json()


NUMBERS = st.none() | st.integers(0, 1_000_000)
LIMITS = st.builds(Limit, tokens=NUMBERS, micro_usd=NUMBERS)


@given(LIMITS, LIMITS, st.integers(0, 12))
def test_shares_never_exceed_what_there_is_or_the_budget_of_an_agent(left: Limit, own: Limit, steps: int) -> None:
    share = compute_even_share(left, own, steps)
    for given_out, there_is, most in (
        (share.tokens, left.tokens, own.tokens),
        (share.micro_usd, left.micro_usd, own.micro_usd),
    ):
        assert (given_out is None) == (there_is is None and most is None)
        if given_out is not None:
            assert given_out >= 0
            assert most is None or given_out <= most
            assert there_is is None or given_out * steps <= there_is


@given(LIMITS, st.integers(1, 12))
def test_without_a_budget_of_its_own_each_agent_gets_an_even_share(left: Limit, steps: int) -> None:
    assert compute_even_share(left, Limit(), steps) == left.divide_by(steps)


@given(LIMITS, st.integers(1, 12))
def test_an_agent_keeps_its_own_budget_where_its_task_has_no_limit(own: Limit, steps: int) -> None:
    assert compute_even_share(Limit(), own, steps) == own


def test_steps_get_other_ids_wherever_they_are_named_and_none_twice() -> None:
    steps = (
        Step(id="ada", role="research", title="t", goal="g"),
        Step(id="research-1", role="research", title="t", goal="g"),
        Step(id="letter-of-ada", role="writing", title="t", goal="g", needs=("ada", "research-1")),
    )
    plan = anonymise_step_ids(Plan(steps=steps), ["ada", "letter-of-ada"])
    assert [(step.id, step.needs) for step in plan.steps] == [
        ("research-2", ()),
        ("research-1", ()),
        ("writing-1", ("research-2", "research-1")),
    ]
    assert anonymise_step_ids(plan, []) == plan


def sharing(*shares: str) -> Plan:
    return Plan(steps=tuple(one.replace(share=share) for one, share in zip(GOOD.steps, shares, strict=True)))


BOTH = Limit(tokens=100_000, micro_usd=1_000_000)


@pytest.mark.parametrize(
    ("shares", "left", "tokens"),
    [
        (("40k", "", "", ""), Limit(tokens=100_000), [40_000, 20_000, 20_000, 20_000]),
        (("50%", "25%", "", ""), Limit(tokens=100_000), [50_000, 25_000, 12_500, 12_500]),
        (("", "", "", "10%"), Limit(tokens=400_000), [90_000, 90_000, 90_000, 40_000]),
        (("25%",) * 4, Limit(tokens=100_001), [25_000] * 4),
        (("70k", "10k", "10k", "10k"), Limit(tokens=100_000), [70_000, 10_000, 10_000, 10_000]),
    ],
)
def test_steps_start_with_the_shares_that_a_person_gave_and_even_parts_of_the_rest(
    shares: tuple[str, ...], left: Limit, tokens: list[int]
) -> None:
    plan = sharing(*shares)
    assert find_share_errors(plan, left) == ()
    assert list(compute_plan_shares(plan, left, Limit(tokens=90_000), {}).values()) == [
        Limit(tokens=each) for each in tokens
    ]


def test_a_share_in_one_unit_leaves_the_other_even() -> None:
    first, second, *_ = compute_plan_shares(sharing("$0.40", "70k", "", ""), BOTH, BOTH, {}).values()
    assert first == Limit(tokens=10_000, micro_usd=400_000)
    assert second == Limit(tokens=70_000, micro_usd=200_000)


@pytest.mark.parametrize(
    ("shares", "left", "told"),
    [
        (
            ("60k", "60k", "", ""),
            Limit(tokens=100_000),
            "but the steps have only 100,000 tokens left",
        ),
        (
            ("60%", "60%", "", ""),
            BOTH,
            "add up to 120,000 tokens and $1.20, but the steps have only 100,000 tokens and $1.00 left",
        ),
        (("100%", "", "", ""), BOTH, "leave no budget for b, weigh, write"),
        (("$0.40", "", "", ""), Limit(tokens=100_000), "the budget is only in tokens"),
        (("40k", "", "", ""), Limit(micro_usd=100_000), "the budget is only in dollars"),
    ],
)
def test_shares_that_do_not_fit_are_refused_with_the_sum(shares: tuple[str, ...], left: Limit, told: str) -> None:
    (error,) = find_share_errors(sharing(*shares), left)
    assert told in error


@pytest.mark.parametrize("share", ["much", "0%", "101%", "2.5%", "-5%", "0k", "1%+1k", "\u0663%", " "])
def test_a_share_that_is_none_keeps_a_plan_from_being_run(share: str) -> None:
    (error,) = find_plan_errors(sharing("", share, "", ""))
    assert error.startswith("step 'b' has an invalid share")


LEFT = st.builds(Limit, tokens=st.integers(0, 10**9), micro_usd=st.none() | st.integers(0, 10**9))
GIVEN = st.sampled_from(["", "1k", "40k", "5%", "33%", "34%", "100%", "$0.50", "1k+$0.01"])


RESERVE = st.integers(0, 10**9)


@given(st.tuples(GIVEN, GIVEN, GIVEN, GIVEN), LEFT, LEFT, RESERVE, RESERVE)
def test_shares_that_fit_never_pass_what_is_left(
    shares: tuple[str, ...], left: Limit, agent: Limit, analysis: int, writing: int
) -> None:
    plan = sharing(*shares)
    if not find_share_errors(plan, left):
        reserves = {
            role: Amount(tokens=least, micro_usd=least)
            for role, least in (("analysis", analysis), ("writing", writing))
        }
        parts = compute_plan_shares(plan, left, agent, reserves).values()
        assert left.can_cover(sum((part.amount for part in parts), Amount()))


def test_no_model_sees_or_gives_a_share() -> None:
    assert "share" not in str(SUBMIT_PLAN.input_schema)
    added = step("more").replace(share="90%")
    assert apply_plan_change(sharing("40k", "", "", ""), PlanChange(add=(added,)), frozenset("a")).steps[:2] == (
        sharing("40k", "", "", "").steps[0],
        step("more"),
    )
