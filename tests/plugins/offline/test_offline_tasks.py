import random
import re
from collections.abc import AsyncIterator

import pytest

from tests.plugins.offline.plan_runner import MAX_TURNS, InMemoryTask, OfflinePlanRunner
from waystation.agents.deliverables import Analysis, ResearchFindings
from waystation.agents.prompt_sections import MORE_BUDGET_NOTE
from waystation.models.ports import ChatModel
from waystation.planning.plan import build_standard_plan, find_plan_errors
from waystation.plugins.offline.agent_request import AgentRequestView, TaskBrief, UpstreamStep
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.plugins.offline.report import build_writing_turn

QUESTION = "Which licences do these packages carry, what is each of them for, and what needs attention before shipping?"
LICENCES = ("License-Expression: MIT", "License: Apache-2.0", "License-Expression: LGPL-3.0-or-later")
STATES = ("5 - Production/Stable", "4 - Beta", "3 - Alpha")
PURPOSES = ("Fast parsing of dates", "Terminal progress bars", "Typed settings from the environment")


def metadata(number: int) -> str:
    return "\n".join(
        [
            "Metadata-Version: 2.4",
            f"Name: package{number}",
            f"Summary: {PURPOSES[number % 3]}, edition {number}",
            LICENCES[number % 3],
            "License-File: LICENSE",
            f"Classifier: Development Status :: {STATES[number % 3]}",
            *(f"Requires-Dist: other{index}" for index in range(number % 7)),
            "",
            f"# package{number}",
            "",
            f"The package{number} helps teams that ship often. It is small,",
            "and it has no dependencies of its own.",
            *(f"Paragraph {index} tells a story about the weather." for index in range(number)),
            *(["", "The old interface is deprecated and will be removed in 9.0."] if number % 4 == 0 else []),
        ]
    )


def packages(count: int) -> dict[str, str]:
    return {f"package{number}.md": metadata(number) for number in range(count)}


def cited(team: OfflinePlanRunner, step: str) -> set[str]:
    done = team.world.handed_in[step]
    assert isinstance(done, ResearchFindings)
    return {citation.partition(":")[0].lstrip("[") for finding in done.findings for citation in finding.citations}


def headings(team: OfflinePlanRunner) -> list[str]:
    return [section.heading for section in team.world.report.sections]


@pytest.fixture
async def model() -> AsyncIterator[ChatModel]:
    made = create_offline_model()
    yield made
    await made.aclose()


async def test_a_plan_has_a_research_step_for_each_part_of_the_question(model: ChatModel) -> None:
    plan = await OfflinePlanRunner(model, InMemoryTask(packages(3))).make_plan(QUESTION)
    assert find_plan_errors(plan) == ()
    assert [step.goal for step in plan.steps[:3]] == [
        "Which licences do these packages carry?",
        "What is each of them for?",
        "What needs attention before shipping?",
    ]
    assert plan.steps[-1].needs == ("research-1", "research-2", "research-3", "analysis")


@pytest.mark.parametrize(
    "question", ["Is it fast?", "Compare the two", "?", "Wie schnell ist es", "这些软件包的许可证是什么？"]
)
async def test_a_question_of_one_part_gets_two_research_steps(model: ChatModel, question: str) -> None:
    plan = await OfflinePlanRunner(model, InMemoryTask(packages(3))).make_plan(question)
    assert find_plan_errors(plan) == ()
    assert [step.title for step in plan.steps[:2]] == ["Direct evidence", "Exceptions, limits and gaps"]


@pytest.mark.parametrize(
    "question",
    ["How high is the rent?", "What was eBay's revenue in 2022?", "When is it due?", "Wie hoch ist die Miete?"],
)
async def test_of_a_figure_no_exceptions_are_looked_for(model: ChatModel, question: str) -> None:
    plan = await OfflinePlanRunner(model, InMemoryTask(packages(3))).make_plan(question)
    assert [step.title for step in plan.steps] == ["Direct evidence", "Weigh the findings", "Write the report"]


async def test_a_report_quotes_what_was_asked_for_word_for_word(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(12)))
    plan = await team.run_task(QUESTION)
    report = team.world.report
    assert team.world.find_misquotations() == []
    assert headings(team) == [step.title for step in plan.steps[:3]]
    licences, purposes, attention = (section.markdown for section in report.sections)
    for number in range(12):
        (line,) = (line for line in licences.splitlines() if f" package{number} [package{number}.md:4-4]" in line)
        assert line.startswith(f'- "{LICENCES[number % 3].partition(": ")[2]}": ')
        assert f'"{PURPOSES[number % 3]}, edition {number}" [package{number}.md:3-3]' in purposes
    assert '- "The old interface is deprecated and will be removed in 9.0.": package0 [package0.md:' in attention
    assert "Classifier: Development Status :: 3 - Alpha" in attention
    assert "Production/Stable" not in attention
    assert '4 of 12 quoted documents say this. "MIT" [package0.md:4-4] [package3.md:4-4]' in report.summary
    assert max(team.turns.values()) <= 20


async def test_what_is_not_covered_is_said(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(45)))
    await team.run_task("Which licences are there, and what needs attention before shipping?")
    assert 30 <= len(cited(team, "research-1")) < 45
    analysis = team.world.handed_in["analysis"]
    assert isinstance(analysis, Analysis)
    assert any(re.search(r"This step quotes \d+ of 45 documents", gap) for gap in analysis.gaps)


@pytest.mark.parametrize("seed", range(6))
async def test_work_goes_on_after_compactions_at_any_turns(model: ChatModel, seed: int) -> None:
    chance = random.Random(seed)
    team = OfflinePlanRunner(model, InMemoryTask(packages(14)), condense_before=chance.sample(range(2, 25), 3))
    team.keep = chance.choice([0, 2, 4])
    plan = await team.run_task(QUESTION)
    assert team.world.find_misquotations() == []
    assert headings(team) == [step.title for step in plan.steps[:3]]
    assert len(cited(team, "research-1")) == len(cited(team, "research-2")) == 14
    assert len(team.world.notes["research-1"]) == len(set(team.world.notes["research-1"]))


async def test_a_window_too_small_for_any_progress_still_ends(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(14)), condense_before=range(1, MAX_TURNS))
    team.keep = 0
    await team.run_task(QUESTION)
    assert team.world.find_misquotations() == []
    assert max(team.turns.values()) < 12


def test_sections_that_a_summary_lists_in_one_line_are_not_written_again() -> None:
    needs = (UpstreamStep(step="research-1", title="Licences"), UpstreamStep(step="research-2", title="Purposes"))
    told = "Kept: section 1 kept: Licences; section 2 kept: Purposes\nDocuments read: a.md"
    reply = build_writing_turn(
        AgentRequestView(brief=TaskBrief(needs=needs), gap=True, summaries=told, max_tokens=2_000)
    )
    assert [call.name for call in reply.calls] == ["submit_report"]


def test_a_long_question_is_cut_in_the_title_and_the_title_shows_it() -> None:
    needs = (UpstreamStep(step="research-1", title="Licences"),)
    brief = TaskBrief(needs=needs, question="Why did it silt up? " * 30)
    view = AgentRequestView(brief=brief, gap=True, summaries="Kept: section 1 kept: Licences", max_tokens=2_000)
    (call,) = build_writing_turn(view).calls
    title = call.input["title"]
    assert isinstance(title, str)
    assert len(title) <= 300
    assert title.endswith("silt…")


async def test_where_more_is_asked_for_a_small_rest_is_no_reason_to_submit(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(5)))
    team.status = f"<status>budget left 3,900 tokens ({MORE_BUDGET_NOTE})\n<plan>research-1 (you)</plan></status>"
    await team.run_task(QUESTION)
    assert team.turns["research-1"] > 2


async def test_with_hardly_any_budget_left_everyone_hands_in_at_once(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(5)))
    team.status = "<status>budget left 3,900 tokens; notes 0</status>"
    await team.run_task(QUESTION)
    assert set(team.turns.values()) == {1, 2}
    assert (
        "were not read" in team.world.report.sections[0].markdown
        or "was not read" in team.world.report.sections[0].markdown
    )


async def test_where_nothing_matches_the_report_says_so(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask({"weather.md": "It rains.\n\nIt pours."}))
    await team.run_task("Which submarines were sold?")
    done = team.world.handed_in["research-1"]
    assert isinstance(done, ResearchFindings)
    assert done.findings == ()
    assert done.open_questions == ("Nothing in the documents matched: Which submarines were sold?",)
    assert "Nothing in the documents matched" in team.world.report.sections[0].markdown


async def test_what_every_document_says_is_handed_in_after_what_few_say(model: ChatModel) -> None:
    everywhere = {f"a{number}.md": f"The harbour was opened in year {number}." for number in range(6)}
    team = OfflinePlanRunner(model, InMemoryTask(everywhere | {"z.md": "The toll was raised in year 7."}))
    await team.run_task("How are the harbour and its toll?")
    done = team.world.handed_in["research-1"]
    assert isinstance(done, ResearchFindings)
    assert done.findings[0].claim == 'z: "The toll was raised in year 7."'


async def test_documents_that_cannot_be_read_are_passed_over(model: ChatModel) -> None:
    locked = {f"locked{number}.md": metadata(number) for number in range(4)}
    team = OfflinePlanRunner(model, InMemoryTask(packages(6) | locked))
    await team.run_task(QUESTION)
    assert cited(team, "research-1") == set(packages(6))


async def test_the_standard_plan_leads_to_a_report_too(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(6)))
    await team.run_task(QUESTION, build_standard_plan(QUESTION))
    assert headings(team) == ["Conclusions"]
    assert "LGPL-3.0-or-later" in team.world.report.sections[0].markdown
    assert team.world.find_misquotations() == []


async def test_small_replies_make_a_shorter_report_and_no_cut_calls(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(12)))
    team.max_output = 300
    await team.run_task(QUESTION)
    assert team.world.find_misquotations() == []
    assert max(usage.output for usage in team.usage) <= 300
    done = team.world.handed_in["research-1"]
    assert isinstance(done, ResearchFindings)
    assert 0 < len(done.findings) < 12
    assert "did not fit into the reply" in done.open_questions[0]


async def test_other_scripts_are_searched_and_quoted(model: ChatModel) -> None:
    texts = {
        "租约.md": "租约\n\n租金每月到期。押金为两个月的租金。\n租期为三年。",
        "天气.md": "今天下雨。明天晴天。",
    }
    team = OfflinePlanRunner(model, InMemoryTask(texts))
    await team.run_task("押金是多少租金？")
    assert '"押金为两个月的租金。" [租约.md:3-3]' in team.world.report.sections[0].markdown
    assert team.world.find_misquotations() == []


async def test_later_turns_read_the_prefix_from_the_cache(model: ChatModel) -> None:
    team = OfflinePlanRunner(model, InMemoryTask(packages(12)))
    await team.run_task(QUESTION)
    assert sum(usage.cache_read for usage in team.usage) > sum(usage.fresh for usage in team.usage)


async def test_a_part_of_the_question_that_names_no_documents_is_answered_from_all_of_them(model: ChatModel) -> None:
    filing = "FORM 8-K\nItem 8.01 Other Events.\nThe board declared a dividend, as this filing reports.\n"
    filings = {f"{name}_2023_8K_dated-2023-01-19.pdf": filing for name in ("COSTCO", "JOHNSON", "MCDONALDS")}
    team = OfflinePlanRunner(model, InMemoryTask(packages(12) | filings))
    plan = await team.run_task("Which licences do these packages use, and what do the 8-K filings report?")
    first, second = (step.id for step in plan.steps if step.role == "research")
    assert len(cited(team, first) - filings.keys()) >= 6
    assert cited(team, second) <= filings.keys()
