"""Each role works with its own model, from the terms of a task through its subagents to its bill."""

from pathlib import Path

from temporalio.client import Client

from tests.crew import CREW_PRICE, FINDING, Call, Move
from tests.delegating import HAND_IN, DelegatingCrew, delegate, delegating
from tests.readers import ANYONE
from tests.running import at_work
from waystation.models.profiles import THINKING_PART, ModelOptions
from waystation.privacy.ports import Redactor
from waystation.tasks.task import TaskPhase, TaskTerms

ASIDE = 1_500
ANALYST = ModelOptions("analyst", "max", ASIDE)
SCRIBE = ModelOptions("scribe", None, "adaptive")
SCRIPTS: dict[str, list[list[Move]]] = {
    "harbours": [[delegate("beacons"), delegate("tides", role="analysis")], [HAND_IN]],
    "harbours.2": [[("submit_analysis", {"conclusions": [FINDING]})]],
}


def by_role(**working: ModelOptions) -> TaskTerms:
    """Terms under which these roles work in another way than the others do."""
    given = delegating(budget=90_000, agent_budget=30_000)
    agents = {
        role: given.agent.replace(
            model=own.model,
            effort=own.effort,
            thinking=own.thinking,
            max_output=ASIDE + 200,
            output_floor=ASIDE + 50,
            prices=(*given.agent.prices, CREW_PRICE.replace(model=own.model)),
        )
        for role, own in working.items()
    }
    return given.replace(by_role=agents)


async def test_each_model_works_for_its_role_and_stands_on_the_bill_with_what_it_did(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = DelegatingCrew(scripts=SCRIPTS)
    async with at_work(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=by_role(analysis=ANALYST, writing=SCRIBE))
        progress = await counter.task().result()
        bill = (await counter.store.payments(counter.task().id, ANYONE)).bill
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
    assert crew.heard[Call("harbours.2", 1)].max_output == part + 200
    assert part < ASIDE
