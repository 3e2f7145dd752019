import pytest

from waystation.planning.plan import (
    Plan,
    PlanChange,
    PlanDiff,
    Step,
    StepChange,
    apply_plan_change,
    build_standard_plan,
    diff_plans,
    find_plan_change_errors,
    find_plan_errors,
)

PLAN = build_standard_plan("Why?")
BEGUN = frozenset({"research-1", "research-2"})
FOG = Step(id="fog", role="research", title="Fog", goal="Read about fog.")
USED = StepChange(id="analysis", needs=("research-1", "research-2", "fog"))


def test_a_new_step_stands_before_those_that_have_not_begun() -> None:
    after = apply_plan_change(PLAN, PlanChange(add=(FOG,), change=(USED,)), BEGUN)
    assert [step.id for step in after.steps] == ["research-1", "research-2", "fog", "analysis", "writing"]
    assert find_plan_errors(after) == ()
    assert diff_plans(PLAN, after) == PlanDiff(added=("fog",), dropped=(), changed=("analysis",))


def test_the_analysis_waits_for_new_research_that_no_step_needs() -> None:
    after = apply_plan_change(PLAN, PlanChange(add=(FOG,)), BEGUN)
    assert after == apply_plan_change(PLAN, PlanChange(add=(FOG,), change=(USED,)), BEGUN)
    ice = FOG.replace(id="ice", needs=("fog",))
    chained = apply_plan_change(PLAN, PlanChange(add=(FOG, ice)), BEGUN)
    assert chained.get_step("analysis").needs == ("research-1", "research-2", "ice")
    late = apply_plan_change(PLAN, PlanChange(add=(FOG,)), BEGUN | {"analysis"})
    assert late.get_step("writing").needs == ("analysis", "fog")
    assert [find_plan_errors(plan) for plan in (after, chained, late)] == [()] * 3


def test_nobody_needs_a_step_that_is_dropped() -> None:
    waiting = PLAN.get_step("writing").replace(needs=("analysis", "late"))
    late = Step(id="late", role="analysis", title="Late", goal="Weigh.", needs=("research-1",))
    plan = Plan(steps=(*PLAN.steps[:-1], late, waiting))
    after = apply_plan_change(plan, PlanChange(drop=("late",)), BEGUN)
    assert after.get_step("writing").needs == ("analysis",)
    assert find_plan_change_errors(plan, PlanChange(drop=("late",)), BEGUN, room=0) == ()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (PlanChange(drop=("research-1",)), "step 'research-1' has started and cannot be changed"),
        (
            PlanChange(change=(StepChange(id="research-2", goal="x"),)),
            "step 'research-2' has started and cannot be changed",
        ),
        (PlanChange(drop=("nobody",)), "there is no step 'nobody' to drop or change"),
        (PlanChange(add=(FOG, FOG), change=(USED,)), "there is budget for 1 new step, but the change adds 2"),
        (
            PlanChange(add=(FOG.replace(role="analysis"),)),
            "step 'fog' is not needed by a later step, so nothing would wait for it",
        ),
        (PlanChange(drop=("writing",)), "the last step, and only the last one, must have the role `writing`"),
        (PlanChange(add=(FOG.replace(id="review-1"),)), "step id 'review-1' must have at most 40 lower-case letters"),
        (PlanChange(add=(FOG.replace(id="analysis"),)), "step id 'analysis' is used more than once"),
    ],
)
def test_what_keeps_a_change_from_being_run_is_said(change: PlanChange, error: str) -> None:
    assert any(said.startswith(error) for said in find_plan_change_errors(PLAN, change, BEGUN, room=1))
