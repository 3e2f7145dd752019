from dataclasses import replace

from tests.support.agent_environment import TASK, AgentEnvironment, make_tool_use
from waystation.agents.delegation import SubagentResult
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ReportSection, ResearchFindings
from waystation.agents.tools.submissions import summarise_result

OPEN = Finding(claim="open: the gate stood open.", citations=("[harbour.md:1-1]",))
SILT = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
FOUND = ResearchFindings(findings=(OPEN, SILT), open_questions=("Who dug?",))


def test_a_claim_stays_a_claim_whatever_it_begins_with() -> None:
    lines = summarise_result(FOUND)
    assert lines.claims == ["open: the gate stood open. [harbour.md:1-1]", "It silted up. [harbour.md:2-2]"]
    assert lines.open_questions == ["open: Who dug?"]
    assert lines.lines == [*lines.claims, *lines.open_questions]


def test_an_analysis_leaves_contradictions_and_gaps_open() -> None:
    lines = summarise_result(Analysis(conclusions=(SILT,), contradictions=("1811 and 1820",), gaps=("depths",)))
    assert lines.claims == ["conclusion: It silted up. [harbour.md:2-2]"]
    assert lines.open_questions == ["contradiction: 1811 and 1820", "gap: depths"]


def test_the_sections_of_a_report_are_what_it_claims() -> None:
    draft = ReportDraft(sections=(ReportSection(heading="Gaps", markdown="gap: none."),))
    assert summarise_result(draft) == (["gap: none."], [])


async def test_what_comes_back_of_a_subagent_counts_claims_alone(env: AgentEnvironment) -> None:
    subagent = env.run_ref().replace(step_id="research-1.1")
    await env.store.open_run(subagent)
    await env.store.commit_deliverable(await env.store.acquire_fence(subagent.run_id), TASK, FOUND)
    back = SubagentResult(id="research-1.1", call_id="c1", partial=False)
    site = replace(await env.make_tool_context(), subagent_results=(back,))
    call = make_tool_use("delegate", role="research", title="Gates", goal="Look at gates.")
    result = await env.agent_deps.build_role_toolbox("research", delegates=True).run(call, site)
    assert result.content.splitlines()[1:-1] == [
        "2 results from harbour.md",
        "open: Who dug?",
        "open: the gate stood open. [harbour.md:1-1]",
        "It silted up. [harbour.md:2-2]",
    ]
