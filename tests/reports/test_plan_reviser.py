import pytest
from pydantic import JsonValue

from tests.support.agent_environment import (
    DOCUMENTS,
    NAME,
    NAME_PLACEHOLDER,
    PLAN,
    SECRET,
    SECRET_PLACEHOLDER,
    TASK,
    AgentEnvironment,
    make_tool_use,
)
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.deliverables import Analysis, Finding, ResearchFindings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ModelUnavailable, RedactionFailed
from waystation.models.ports import ModelResponse
from waystation.planning.plan import RevisionResult
from waystation.privacy.policy import TextDestination
from waystation.reports.reviewers import REASON_CHARACTERS, PlanReviser
from waystation.tasks.reviews import RevisionRequest
from waystation.testing.doubles import ScriptedModel, make_scripted_response

BEGUN = ("research-1", "research-2")
FOG: JsonValue = {"id": "fog", "role": "research", "title": f"Fog of {NAME}", "goal": "Read about fog."}
USED: JsonValue = {"id": "analysis", "needs": ["research-1", "research-2", "fog"]}


def revision(call_id: str = "r1", reason: str = f"Ask {NAME}.", **arguments: object) -> ModelResponse:
    return make_scripted_response(make_tool_use("revise_plan", call_id, reason=reason, **arguments))


ADDED = revision(add=[FOG], change=[USED])


async def made(env: AgentEnvironment, model: ScriptedModel, room: int = 1, limit: int = 60_000) -> RevisionResult:
    env.model = model
    store = env.store
    reviser = PlanReviser(env.metered_model, store, env.redactor)
    request = RevisionRequest(
        ref=env.ref,
        number=1,
        model="small",
        limit=Limit(tokens=limit),
        started_steps=BEGUN,
        reviewed_steps=BEGUN,
        max_new_steps=room,
    )
    return await reviser.revise(request)


async def test_it_sees_plan_findings_and_what_stayed_open_and_its_change_is_a_new_version(
    env: AgentEnvironment,
) -> None:
    found = Finding(claim=f"Silt, says {SECRET_PLACEHOLDER}", citations=("[harbour.md:2-2]",))
    many = ResearchFindings(findings=(found,) * 50, open_questions=("How deep?",))
    await env.store.commit_deliverable((await env.make_tool_context("research-1")).fence, TASK, many)
    weighed = Analysis(conclusions=(), contradictions=("1811 and 1820",), gaps=("depths",))
    await env.store.commit_deliverable((await env.make_tool_context("analysis")).fence, TASK, weighed)
    model = ScriptedModel([ADDED])
    revised = await made(env, model)
    (told,) = model.requests[0].messages
    for part in ("- open: How deep?", "- contradiction: 1811 and 1820", "- gap: depths", "- (10 more findings)"):
        assert part in told.text
    assert "- analysis (analysis, not begun; needs research-1, research-2) The analysis: Do the analysis." in told.text
    assert "- research-1 (research, done) " in told.text
    assert '<found step="research-2" title="The research-2">\n- nothing\n</found>' in told.text
    assert '<found step="writing"' not in told.text, "it has not begun, so it has not searched in vain"
    assert SECRET not in told.text
    assert (revised.revision.version, revised.revision.added, revised.revision.changed) == (2, ("fog",), ("analysis",))
    first, second = await env.store.list_plan_versions(TASK, SYSTEM_SCOPE)
    assert first.plan == PLAN
    assert revised.plan == second.plan.without_goals()
    assert (second.reason, second.plan.get_step("fog").title) == (
        f"Ask {NAME_PLACEHOLDER}.",
        f"Fog of {NAME_PLACEHOLDER}",
    )
    assert await env.store.get_newest_plan(TASK, SYSTEM_SCOPE) == second.plan


async def test_a_new_step_needs_no_change_of_the_analysis(env: AgentEnvironment) -> None:
    revised = await made(env, ScriptedModel([revision(add=[FOG])]))
    assert (revised.revision.added, revised.revision.changed) == (("fog",), ("analysis",))


async def test_titles_and_reason_call_a_document_that_is_named_after_a_person_without_the_name(
    bare_env: AgentEnvironment,
) -> None:
    name = f"talk_with_{NAME.replace(' ', '_')}.md"
    await bare_env.open_task((*DOCUMENTS, SourceDocument(name=name, text="Fog.")))
    read: JsonValue = {"id": "fog", "role": "research", "title": f"Read {name}", "goal": "Read about fog."}
    await made(bare_env, ScriptedModel([revision(reason=f"Nobody read {name}.", add=[read], change=[USED])]))
    version = (await bare_env.store.list_plan_versions(TASK, SYSTEM_SCOPE))[-1]
    called = f"talk_with_{NAME_PLACEHOLDER}.md"
    assert version.reason == f"Nobody read {called}."
    assert version.plan.get_step("fog").title == f"Read {called}"


async def test_a_long_reason_is_cut_before_a_placeholder_and_not_within(env: AgentEnvironment) -> None:
    words = "x" * (REASON_CHARACTERS - 5)
    await made(env, ScriptedModel([revision(reason=f"{words} {NAME}.", add=[FOG], change=[USED])]))
    assert (await env.store.list_plan_versions(TASK, SYSTEM_SCOPE))[-1].reason == words


async def test_a_revision_that_was_made_is_given_again_without_a_call(env: AgentEnvironment) -> None:
    first = await made(env, ScriptedModel([ADDED]))
    assert await made(env, ScriptedModel([])) == first


@pytest.mark.parametrize("destination", [TextDestination.TITLE])
async def test_a_retry_after_a_crash_behind_the_reply_makes_no_call(
    env: AgentEnvironment, destination: TextDestination
) -> None:
    def answer(_: object) -> ModelResponse:
        env.redactor.failing_at = frozenset({destination})
        return ADDED

    with pytest.raises(RedactionFailed):
        await made(env, ScriptedModel(answer))
    env.redactor.failing_at = frozenset()
    assert (await made(env, ScriptedModel([]))).revision.version == 2


async def test_a_retry_after_a_cut_repair_asks_only_for_the_repair(env: AgentEnvironment) -> None:
    bad = revision(drop=["research-1"])
    with pytest.raises(ModelUnavailable):
        await made(env, ScriptedModel([bad, ModelUnavailable("cut", possibly_billed=False)]))
    again = ScriptedModel([revision("r2")])
    revised = await made(env, again)
    assert (again.calls, revised.revision.version, revised.notes) == (1, None, ())
    assert "- step 'research-1' has started" in again.requests[0].messages[-1].tool_results[0].content


async def test_without_room_for_new_steps_none_is_taken(env: AgentEnvironment) -> None:
    model = ScriptedModel([ADDED, revision("r2", add=[FOG], change=[USED])])
    revised = await made(env, model, room=0)
    assert revised.notes == (
        "The revised plan could not be run, even after one correction, so the plan stays unchanged.",
    )
    assert "There is budget for 0 new steps." in model.requests[0].messages[0].text
    assert await env.store.get_newest_plan(TASK, SYSTEM_SCOPE) == PLAN


async def test_too_little_money_means_no_call(env: AgentEnvironment) -> None:
    revised = await made(env, ScriptedModel([]), limit=600)
    assert revised.notes == ("The budget was too small for a revision of the plan, so the plan stays unchanged.",)
