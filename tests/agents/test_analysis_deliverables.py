from tests.reports.test_publisher import PROGRESS
from tests.support.agent_environment import PLAN, TASK, AgentEnvironment, make_step, make_tool_use
from waystation.agents.deliverables import Analysis, Finding
from waystation.agents.tools.submissions import TaskDeliverables, load_task_deliverables
from waystation.planning.plan import Plan
from waystation.reports.publisher import ReportIndexer
from waystation.reports.reviewers import render_step_results

TWICE = Plan(steps=(*PLAN.steps[:2], make_step("causes", "analysis", "research-1"), *PLAN.steps[2:]))
SILT = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
DUG = Finding(claim="It was dug in 1811.", citations=("[harbour.md:1-1]",))
CAUSES = Analysis(conclusions=(SILT,), contradictions=("Two years are given.",))
FIGURES = Analysis(conclusions=(DUG,), gaps=("No depths.",))


async def of_two(env: AgentEnvironment, first: Analysis | None, second: Analysis | None) -> TaskDeliverables:
    """What there is where two analysis steps have come so far."""
    await env.open_task(plan=TWICE)
    for step_id, analysis in (("causes", first), ("analysis", second)):
        if analysis is not None:
            run = env.run_ref("analysis").replace(step_id=step_id)
            await env.store.open_run(run)
            await env.store.commit_deliverable(await env.store.acquire_fence(run.run_id), TASK, analysis)
    return await load_task_deliverables(env.ref.scope, env.store)


async def test_every_analysis_counts_in_the_order_of_the_plan(bare_env: AgentEnvironment) -> None:
    there = await of_two(bare_env, CAUSES, FIGURES)
    assert there.analyses == {"causes": CAUSES, "analysis": FIGURES}
    assert [*there.analyses] == ["causes", "analysis"]
    assert there.analysis == Analysis(
        conclusions=(SILT, DUG), contradictions=("Two years are given.",), gaps=("No depths.",)
    )


async def test_a_partial_report_has_the_conclusions_of_every_analysis(bare_env: AgentEnvironment) -> None:
    await of_two(bare_env, CAUSES, FIGURES)
    composed = await bare_env.publisher.compose(bare_env.ref, PROGRESS)
    bullets = "- It silted up. [harbour.md:2-2]\n- It was dug in 1811. [harbour.md:1-1]"
    assert f"## Conclusions\n\n{bullets}" in composed.markdown


async def test_memory_gets_every_conclusion_under_its_own_step(bare_env: AgentEnvironment) -> None:
    await of_two(bare_env, CAUSES, FIGURES)
    store = bare_env.store
    chronicler = ReportIndexer(store, bare_env.redactor, bare_env.outbox_drainer, lambda: bare_env.clock.now)
    await chronicler.enqueue_results(bare_env.ref, "The report.", "blob", None)
    await chronicler.drain_results(TASK)
    found = [one.passage for one in bare_env.memory.passages.values() if one.passage.kind == "finding"]
    assert sorted((passage.step_id, passage.text) for passage in found) == [
        ("analysis", "It was dug in 1811. [harbour.md:1-1]"),
        ("causes", "It silted up. [harbour.md:2-2]"),
    ]


async def test_who_revises_sees_each_analysis_in_its_place(bare_env: AgentEnvironment) -> None:
    parts = render_step_results(await of_two(bare_env, CAUSES, FIGURES))
    assert [part.splitlines()[1:-1] for part in parts] == [
        ["- conclusion: It silted up. [harbour.md:2-2]", "- contradiction: Two years are given."],
        ["- conclusion: It was dug in 1811. [harbour.md:1-1]", "- gap: No depths."],
    ]


async def test_what_an_unfinished_analysis_has_noted_stays_beside_a_finished_one(
    bare_env: AgentEnvironment,
) -> None:
    await of_two(bare_env, CAUSES, None)
    note = make_tool_use("take_note", text="Dug in 1811.", document="harbour.md", first_line=1, last_line=1)
    await bare_env.call_tool(note, "analysis")
    there = await load_task_deliverables(bare_env.ref.scope, bare_env.store)
    assert [part.splitlines()[:2] for part in render_step_results(there)] == [
        ['<found step="causes" title="The causes">', "- conclusion: It silted up. [harbour.md:2-2]"],
        ['<found step="analysis" title="The analysis">', "- Dug in 1811. [harbour.md:1-1]"],
    ]
