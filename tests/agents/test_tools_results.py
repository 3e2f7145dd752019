from dataclasses import replace

from tests.agents.office import TASK, Office, use
from waystation.agents.delegation import SubagentResult
from waystation.agents.deliverables import Analysis, Finding, ReportDraft, ResearchFindings, Section
from waystation.agents.tools.work import result_lines

OPEN = Finding(claim="open: the gate stood open.", citations=("[harbour.md:1-1]",))
SILT = Finding(claim="It silted up.", citations=("[harbour.md:2-2]",))
FOUND = ResearchFindings(findings=(OPEN, SILT), open_questions=("Who dug?",))


def test_a_claim_stays_a_claim_whatever_it_begins_with() -> None:
    lines = result_lines(FOUND)
    assert lines.claims == ["open: the gate stood open. [harbour.md:1-1]", "It silted up. [harbour.md:2-2]"]
    assert lines.left_open == ["open: Who dug?"]
    assert lines.lines == [*lines.claims, *lines.left_open]


def test_an_analysis_leaves_contradictions_and_gaps_open() -> None:
    lines = result_lines(Analysis(conclusions=(SILT,), contradictions=("1811 and 1820",), gaps=("depths",)))
    assert lines.claims == ["conclusion: It silted up. [harbour.md:2-2]"]
    assert lines.left_open == ["contradiction: 1811 and 1820", "gap: depths"]


def test_the_sections_of_a_report_are_what_it_claims() -> None:
    draft = ReportDraft(sections=(Section(heading="Gaps", markdown="gap: none."),))
    assert result_lines(draft) == (["gap: none."], [])


async def test_what_comes_back_of_a_subagent_counts_claims_alone(office: Office) -> None:
    subagent = office.run_ref().replace(step_id="research-1.1")
    await office.store.open_run(subagent)
    await office.store.hand_in(await office.store.take_fence(subagent.run_id), TASK, FOUND)
    back = SubagentResult(id="research-1.1", call_id="c1", partial=False)
    site = replace(await office.site(), handed_back=(back,))
    call = use("delegate", role="research", title="Gates", goal="Look at gates.")
    result = await office.desk.toolbox("research", delegates=True).run(call, site)
    assert result.content.splitlines()[1:-1] == [
        "2 results from harbour.md",
        "open: Who dug?",
        "open: the gate stood open. [harbour.md:1-1]",
        "It silted up. [harbour.md:2-2]",
    ]
