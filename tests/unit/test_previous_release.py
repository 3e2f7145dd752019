"""What a store has of the release before budgets in dollars still loads, with its amounts that are bare tokens.

Only what stores keep. Histories of that release are not replayed: docs/deploy.md says which are.
"""

import pytest
from pydantic import JsonValue

from waystation.domain.amount import Amount, Limit
from waystation.domain.models import PRICES
from waystation.domain.task import Approval, TaskPhase, TaskProgress, TaskTerms

SHARE = 3_096
MODEL = "waystation-offline-1"
AGENT: dict[str, JsonValue] = {
    **{"model": MODEL, "condense_model": MODEL, "window": 4_400, "trigger": 3_300, "target": 1_650},
    **{"max_output": 1_100, "output_floor": 256, "turn_limit": 12, "hard": False},
}
TERMS: dict[str, JsonValue] = {
    **{"budget": 13_000, "agent_budget": 13_000, "mode": "approval", "agent": AGENT, "plan_model": MODEL},
    "offline": True,
}
USAGE: dict[str, JsonValue] = {"input": 46, "cache_write": 4_970, "cache_read": 15_179, "output": 523}
STEP: dict[str, JsonValue] = {
    **{"id": "research-1", "role": "research", "title": "Which harbours", "state": "done", "legs": 4, "usage": USAGE},
    **{"cost_micro_usd": None, "limit": 9_288, "spent": 5_539, "reason": ""},
}
APPROVAL: dict[str, JsonValue] = {
    **{"request_id": "research-1-1", "agent": "research-1", "asked_tokens": SHARE, "granted_tokens": SHARE},
    **{"decision": "approved", "by": "Ada", "note": "", "finish": "partial", "spent": 699, "task_spent": 2_845},
    **{"steps_left": 4, "requested_at": "2026-11-21T09:00:04Z", "answered_at": "2026-11-21T09:00:05Z"},
}
PROGRESS: dict[str, JsonValue] = {
    **{"task_id": "task-9e06b6ea0bf21c33", "phase": "partial", "title": "Which harbours", "model": MODEL},
    **{"steps": [STEP], "budget": {"limit": 28_480, "spent": 17_571, "reserved": 0}, "legs": 15, "compactions": []},
    "totals": {"usage": USAGE, "turns": 25, "possibly_billed": 0, "last_prompt": 0, "cost_micro_usd": None},
    **{"approvals": [APPROVAL], "refusals": [], "notes": [], "report": "d7" * 32},
}


def test_the_terms_of_a_task_are_the_same() -> None:
    terms = TaskTerms.model_validate(TERMS)
    assert (terms.budget, terms.agent_budget) == (Limit(tokens=13_000), Limit(tokens=13_000))
    assert terms.ceiling.unlimited
    assert terms.agent.prices == PRICES
    assert all(terms.agent_of(role) == terms.agent for role in ("research", "analysis", "writing"))
    assert (terms.models, terms.agent.effort, terms.agent.thinking) == ({}, None, None)


def test_the_progress_of_a_task_that_ended_shows_the_same_numbers() -> None:
    progress = TaskProgress.model_validate(PROGRESS)
    assert progress.phase is TaskPhase.PARTIAL
    assert progress.budget.spent == Amount(tokens=17_571)
    assert [(step.limit, step.spent) for step in progress.steps] == [(Limit(tokens=9_288), Amount(tokens=5_539))]
    assert [(one.asked, one.granted) for one in progress.approvals] == [(Amount(tokens=SHARE), Amount(tokens=SHARE))]


@pytest.mark.parametrize(("kind", "written"), [(TaskTerms, TERMS), (TaskProgress, PROGRESS), (Approval, APPROVAL)])
def test_what_is_loaded_is_kept_in_todays_shape_and_means_the_same(
    kind: type[TaskTerms | TaskProgress | Approval], written: dict[str, JsonValue]
) -> None:
    loaded = kind.model_validate(written)
    assert kind.model_validate_json(loaded.model_dump_json()) == loaded
