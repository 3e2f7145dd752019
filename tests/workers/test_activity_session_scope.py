"""The session of an activity is found in whatever its input is."""

from inspect import signature
from typing import get_type_hints

import pytest
from pydantic import BaseModel

from waystation.activities.agents import AgentActivities, ContextActivities
from waystation.activities.memory import DocumentActivities
from waystation.activities.tasks import OversightActivities, PlanningActivities, ReportActivities
from waystation.kernel.refs import TaskRef
from waystation.workers.activity_deps import DEPTH, find_reference, get_current_session, get_current_tenant

REF = TaskRef(store_id="s", tenant="t", session="harbour", task_id="task-1")
REDACTING = (
    AgentActivities.run_research_leg,
    ContextActivities.compress,
    ContextActivities.edit,
    DocumentActivities.index_next_slice,
    OversightActivities.revise_plan,
    OversightActivities.review_report,
    OversightActivities.judge_sentences,
    PlanningActivities.admit_task,
    PlanningActivities.create_plan,
    ReportActivities.store_report,
)


def refers(model: type, depth: int = DEPTH) -> bool:
    """Whether an input of this type has a reference with a session within reach."""
    if issubclass(model, BaseModel) and {"tenant", "session", "task_id"} <= model.model_fields.keys():
        return True
    if not issubclass(model, BaseModel) or not depth:
        return False
    kinds = [field.annotation for field in model.model_fields.values()]
    return any(isinstance(kind, type) and refers(kind, depth - 1) for kind in kinds)


@pytest.mark.parametrize("activity", REDACTING, ids=lambda one: one.__qualname__)
def test_every_activity_that_redacts_says_of_which_session_it_is(activity: object) -> None:
    hints = get_type_hints(activity)
    name = list(signature(activity).parameters)[1]  # pyright: ignore[reportArgumentType]
    assert refers(hints[name])


def test_a_session_is_found_by_reference_and_not_by_name() -> None:
    assert find_reference(REF) is REF
    assert find_reference("session") is None
    assert find_reference(None) is None
    assert (get_current_session(), get_current_tenant()) == ("", "")
