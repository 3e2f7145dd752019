"""A change of a plan at work: steps that have not begun may come, go or get another goal; all others stay."""

from pydantic import Field

from waystation.domain.plan import Plan, Step, plan_errors
from waystation.domain.value import Value


class StepChange(Value):
    """Another goal, title or order of one step. What is left out stays."""

    id: str
    goal: str | None = None
    title: str | None = None
    needs: tuple[str, ...] | None = None


class PlanChange(Value):
    """What is to be done to a plan. Nothing at all: it is kept as it is."""

    add: tuple[Step, ...] = Field(default=(), description="New steps. A later step must need each of them.")
    drop: tuple[str, ...] = Field(default=(), description="Ids of steps that are not worth doing any more.")
    change: tuple[StepChange, ...] = Field(default=(), description="Steps with another goal, or other needs.")

    @property
    def nothing(self) -> bool:
        """Whether it keeps the plan."""
        return not (self.add or self.drop or self.change)


class PlanVersion(Value):
    """One of a task's plans, as the store keeps it."""

    number: int
    """1 is the plan that planning made."""
    plan: Plan
    """With its goals."""
    made_by: str
    """Id of the agent run: of the planning, or of a revision."""
    reason: str = ""
    """Redacted. Why the plan was changed; empty for the first."""


def changed(plan: Plan, change: PlanChange, begun: frozenset[str]) -> Plan:
    """The plan after the change. New steps stand before the first that has not begun; nobody needs what is dropped."""
    changes = {one.id: one.model_dump(exclude={"id"}, exclude_none=True) for one in change.change}
    kept = [
        step if step.id in begun else _without(step.model_copy(update=changes.get(step.id, {})), change.drop)
        for step in plan.steps
        if step.id not in change.drop
    ]
    first = next((place for place, step in enumerate(kept) if step.id not in begun), len(kept))
    return Plan(steps=(*kept[:first], *change.add, *kept[first:]))


def change_errors(plan: Plan, change: PlanChange, begun: frozenset[str], room: int) -> tuple[str, ...]:
    """Everything that keeps the changed plan from being run, in words that a model can act on.

    `room`: for how many new steps there is budget.
    """
    ids = {step.id for step in plan.steps}
    touched = [*change.drop, *(one.id for one in change.change)]
    errors = [f"there is no step {step_id!r} to drop or change" for step_id in touched if step_id not in ids]
    errors += [f"step {step_id!r} has begun, and stays as it is" for step_id in touched if step_id in begun]
    if len(change.add) > room:
        errors.append(f"there is budget for {room} new steps, these are {len(change.add)}")
    return tuple(errors) or plan_errors(changed(plan, change, begun))


def difference(before: Plan, after: Plan) -> dict[str, tuple[str, ...]]:
    """Ids of the steps that were `added`, `dropped` and `changed`."""
    old, new = ({step.id: step for step in plan.steps} for plan in (before, after))
    return {
        "added": tuple(step_id for step_id in new if step_id not in old),
        "dropped": tuple(step_id for step_id in old if step_id not in new),
        "changed": tuple(step_id for step_id in new if step_id in old and new[step_id] != old[step_id]),
    }


def _without(step: Step, dropped: tuple[str, ...]) -> Step:
    return step.model_copy(update={"needs": tuple(need for need in step.needs if need not in dropped)})
