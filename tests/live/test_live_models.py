"""Each role works with its own model, from the terms of a task through its subagents to its bill."""

from pathlib import Path

from temporalio.client import Client

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import FINDING, SCRIPTED_MODEL_PRICE, ModelCall, ScriptedCall
from tests.support.temporal_platform import run_platform
from waystation.models.profiles import THINKING_PART, ModelOptions
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskConfig, TaskPhase

ASIDE = 1_500
ANALYST = ModelOptions("analyst", "max", ASIDE)
SCRIBE = ModelOptions("scribe", None, "adaptive")
SCRIPTS: dict[str, list[list[ScriptedCall]]] = {
    "harbours": [[make_delegate_call("beacons"), make_delegate_call("tides", role="analysis")], [SUBMIT_FINDINGS_CALL]],
    "harbours.2": [[("submit_analysis", {"conclusions": [FINDING]})]],
}


def by_role(**working: ModelOptions) -> TaskConfig:
    """Terms under which these roles work in another way than the others do."""
    given = make_delegating_task_config(budget=90_000, agent_budget=30_000)
    agents = {
        role: given.default.replace(
            model=own.model,
            effort=own.effort,
            thinking=own.thinking,
            max_output=ASIDE + 200,
            min_reply_tokens=ASIDE + 50,
            prices=(*given.default.prices, SCRIPTED_MODEL_PRICE.replace(model=own.model)),
        )
        for role, own in working.items()
    }
    return given.replace(by_role=agents)


async def test_each_model_works_for_its_role_and_stands_on_the_bill_with_what_it_did(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingTaskModel(scripts=SCRIPTS)
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=by_role(analysis=ANALYST, writing=SCRIBE))
        progress = await counter.get_task_handle().result()
        bill = (await counter.store.list_task_charges(counter.get_task_handle().id, SYSTEM_SCOPE)).cost_breakdown
    assert progress.phase is TaskPhase.DONE
    assert (progress.model, progress.models) == (
        "crew",
        {"research": "crew", "analysis": "analyst", "writing": "scribe"},
    )
    roles = {step.id: step.role for step in progress.steps}
    models = {"plan": "crew"} | {step: progress.models[role] for step, role in roles.items()}
    assert {line.agent: line.model for line in bill.lines} == models
    assert (models["harbours.1"], models["harbours.2"]) == ("crew", "analyst")
    assert {line.model: line.cost_micro_usd is None for line in bill.lines} == {
        "crew": True,
        "analyst": False,
        "scribe": False,
    }
    asked = {call.step: (heard.effort, heard.thinking) for call, heard in crew.heard.items()}
    (part,) = (step.limit.amount.tokens // THINKING_PART for step in progress.steps if step.id == "harbours.2")
    assert asked["tides"] == asked["harbours.1"] == (None, None)
    assert (asked["weigh"], asked["harbours.2"]) == (("max", ASIDE), ("max", part))
    assert asked["write"] == (None, "adaptive")
    assert crew.heard[ModelCall("harbours.2", 1)].max_output == part + 200
    assert part < ASIDE
