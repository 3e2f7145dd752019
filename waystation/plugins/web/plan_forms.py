"""The form that edits a plan: its steps as fields, and the plan that the fields describe.

The fields of step N are `id-N`, `role-N`, `title-N`, `goal-N`, `share-N`, and `needs-N-ID` for each step that it needs.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from pydantic import ValidationError

from waystation.planning.plan import MAX_STEPS, Plan, Step, find_plan_faults
from waystation.plugins.web.forms import WHOLE_FORM, FormValidationError
from waystation.plugins.web.request_bodies import format_fault_message

MAX_PLAN_FIELDS = (MAX_STEPS + 1) * (MAX_STEPS + 6)
"""Maximum fields of the form: one step more than a plan may have is refused with a reason."""
NEW_STEP_ROLE = "research"


class PlanFormStep(NamedTuple):
    """One step as the form shows it. `number` counts from 1."""

    number: int
    id: str
    role: str
    title: str
    goal: str
    share: str
    needs: frozenset[str]


def list_form_steps(plan: Plan) -> tuple[PlanFormStep, ...]:
    """Return the steps of a plan as the form shows them."""
    return tuple(
        PlanFormStep(number, step.id, step.role, step.title, step.goal, step.share, frozenset(step.needs))
        for number, step in enumerate(plan.steps, 1)
    )


def parse_form_steps(typed: Mapping[str, str]) -> tuple[PlanFormStep, ...]:
    """Return the steps that a form contains, whatever is wrong with them."""
    return tuple(_iter_steps(typed))


def _iter_steps(typed: Mapping[str, str]) -> Iterator[PlanFormStep]:
    for number in range(1, MAX_STEPS + 2):
        if f"id-{number}" not in typed:
            return
        texts = [typed.get(f"{name}-{number}", "").strip() for name in ("id", "role", "title", "goal", "share")]
        prefix = f"needs-{number}-"
        needs = frozenset(name.removeprefix(prefix) for name in typed if name.startswith(prefix))
        yield PlanFormStep(number, texts[0], texts[1], texts[2], texts[3], texts[4], needs)


def add_form_step(steps: Sequence[PlanFormStep]) -> tuple[PlanFormStep, ...]:
    """Add an empty step before the last one, which needs it. Its ID is its role with the first free number."""
    taken = {step.id for step in steps}
    free = next(one for one in (f"{NEW_STEP_ROLE}-{number}" for number in count(1)) if one not in taken)
    new = PlanFormStep(0, free, NEW_STEP_ROLE, "", "", "", frozenset())
    last = [step._replace(needs=step.needs | {free}) for step in steps[-1:]]
    return _number([*steps[:-1], new, *last])


def remove_form_step(steps: Sequence[PlanFormStep], step_id: str) -> tuple[PlanFormStep, ...]:
    """Remove a step; no other step needs it any more."""
    return _number([step._replace(needs=step.needs - {step_id}) for step in steps if step.id != step_id])


def _number(steps: Sequence[PlanFormStep]) -> tuple[PlanFormStep, ...]:
    return tuple(step._replace(number=number) for number, step in enumerate(steps, 1))


def build_plan_of_form(steps: Sequence[PlanFormStep]) -> Plan:
    """Build the plan. Raises FormValidationError if it cannot run, with each error at its field."""
    faults: dict[str, list[str]] = {}
    built: list[Step] = []
    for step in steps:
        # In the order of the steps: a set has none.
        needs = tuple(other.id for other in steps if other.id in step.needs)
        given = {**step._asdict(), "needs": (*needs, *sorted(step.needs - {*needs}))}
        try:
            built.append(Step.model_validate({name: given[name] for name in Step.model_fields}))
        except ValidationError as error:
            for fault in error.errors():
                words = format_fault_message(fault["type"], fault["msg"])
                faults.setdefault(f"{fault['loc'][0]}-{step.number}", []).append(words)
    if not faults:
        plan = Plan(steps=tuple(built))
        for fault in find_plan_faults(plan):
            # The ID is no visible field.
            at_field = fault.step is not None and fault.field != "id"
            faults.setdefault(f"{fault.field}-{(fault.step or 0) + 1}" if at_field else WHOLE_FORM, []).append(
                fault.text
            )
        if not faults:
            return plan
    raise FormValidationError({name: "; ".join(texts) for name, texts in faults.items()})
