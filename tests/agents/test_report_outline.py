"""The outline of a report, and the sections of it that are missing."""

from inline_snapshot import snapshot

from tests.support.agent_environment import TASK, AgentEnvironment, make_tool_use
from tests.support.scopes import SYSTEM_SCOPE
from waystation.agents.compactor import describe_unfinished_result
from waystation.agents.deliverables import (
    MAX_DETAIL_CHARACTERS,
    OutlineSection,
    ReportDraft,
    ReportSection,
    ResearchFindings,
)
from waystation.agents.tools.submissions import INCOMPLETE_REPORT, extract_deliverable
from waystation.context.transcript import build_user_message
from waystation.testing.doubles import ScriptedModel, make_scripted_response

CAUSES = {"heading": "Causes", "covers": "Why it silted up", "findings": ["research-1 1"]}
LIMITS = {"heading": "Conflicts and limits", "covers": "What the sources leave open"}
OUTLINE = make_tool_use("write_outline", "c1", title="The harbour", sections=[CAUSES, LIMITS])
FIRST = make_tool_use("write_section", "c2", heading="1. causes", markdown="Silt [harbour.md:2-2].")
SECOND = make_tool_use("write_section", "c4", heading="Conflicts and limits", markdown="None.")
SUBMIT = make_tool_use("submit_report", "c3", title="The harbour", summary="Silt.")
AGAIN = make_tool_use("submit_report", "c5", title="The harbour", summary="Silt.")


async def test_an_outline_says_what_is_to_write_and_each_section_what_is_left(env: AgentEnvironment) -> None:
    assert await env.call_tool(OUTLINE, "writing") == snapshot("""\
outline kept, with 2 sections
Still to write: “Causes” (Why it silted up); “Conflicts and limits” (What the sources leave open)\
""")
    assert await env.call_tool(FIRST, "writing") == snapshot("""\
section 1 kept: 1. causes
Still to write: “Conflicts and limits” (What the sources leave open)
1 citation checked: all hold.\
""")
    assert (await env.call_tool(SECOND, "writing")).endswith("then call submit_report.")
    assert await env.call_tool(AGAIN, "writing") == "report with 2 sections submitted\n1 citation checked: all hold."
    draft = await env.store.get_deliverable(f"{TASK}/writing", SYSTEM_SCOPE)
    assert isinstance(draft, ReportDraft)
    assert draft.outline == (OutlineSection.model_validate(CAUSES), OutlineSection.model_validate(LIMITS))


async def test_a_report_without_sections_of_its_outline_comes_back_once(env: AgentEnvironment) -> None:
    model = ScriptedModel([*(make_scripted_response(call) for call in (OUTLINE, FIRST, SUBMIT, AGAIN))])
    outcome = await env.run_leg(model, step_id="writing")
    results = [result for message in await env.load_messages("writing") for result in message.tool_results]
    assert [result.is_error for result in results] == [False, False, True, False]
    assert results[2].content == (
        f"{INCOMPLETE_REPORT} “Conflicts and limits” (What the sources leave open). Write them with write_section. If "
        "the report is complete without them, call submit_report again."
    )
    assert outcome.type == "finished"


async def test_a_report_needs_no_outline(env: AgentEnvironment) -> None:
    assert await env.call_tool(FIRST, "writing") == "section 1 kept: 1. causes\n1 citation checked: all hold."
    assert await env.call_tool(AGAIN, "writing") == "report with 1 section submitted\n1 citation checked: all hold."


async def test_a_second_outline_keeps_what_is_written(env: AgentEnvironment) -> None:
    await env.call_tool(FIRST, "writing")
    assert "Conflicts" in await env.call_tool(OUTLINE, "writing")
    draft = await env.store.get_deliverable(f"{TASK}/writing", SYSTEM_SCOPE)
    assert isinstance(draft, ReportDraft)
    assert draft.sections == (ReportSection(heading="1. causes", markdown="Silt [harbour.md:2-2]."),)


async def test_an_outline_alone_is_no_report_and_its_rest_survives_a_compaction(env: AgentEnvironment) -> None:
    await env.call_tool(OUTLINE, "writing")
    draft = await env.store.get_deliverable(f"{TASK}/writing", SYSTEM_SCOPE)
    assert isinstance(draft, ReportDraft)
    assert draft.is_empty
    assert (await env.call_tool(SUBMIT, "writing")).startswith("ERROR The report has no sections yet.")
    line = describe_unfinished_result(*await env.store.load_work(f"{TASK}/writing", env.ref.scope))
    assert line.endswith(
        "an outline with these sections still to be written: “Causes” (Why it silted up); “Conflicts and limits” "
        "(What the sources leave open)"
    )


async def test_the_outline_is_rewound_with_the_conversation(env: AgentEnvironment) -> None:
    model = ScriptedModel([*(make_scripted_response(call) for call in (OUTLINE, FIRST, SECOND, AGAIN))])
    await env.run_leg(model, step_id="writing")
    messages = (await env.load_transcript("writing")).messages
    draft = extract_deliverable(messages)
    assert isinstance(draft, ReportDraft)
    assert (len(draft.outline), draft.outline_title) == (2, "The harbour")
    assert extract_deliverable([build_user_message("m1", "Go.")]) is None


async def test_a_detail_that_is_too_long_is_rejected_with_its_number(env: AgentEnvironment) -> None:
    findings = [{"claim": "Silt.", "detail": "x" * length} for length in (MAX_DETAIL_CHARACTERS, 1_501)]
    call = make_tool_use("submit_findings", findings=findings)
    assert await env.call_tool(call) == (
        "ERROR A detail may have at most 1,500 characters; the detail of finding 2 has 1,501. Shorten long details, or "
        "divide the findings, and submit all findings again."
    )
    assert await env.store.get_deliverable(f"{TASK}/research-1", SYSTEM_SCOPE) is None


async def test_a_finding_has_detail_quotations_date_and_confidence(env: AgentEnvironment) -> None:
    finding = {
        "claim": "It silted up.",
        "detail": "Within ten years.",
        "quotations": [{"quote": "It silted up within ten years.", "citation": "[harbour.md:2-2]"}],
        "date": "1821",
        "confidence": "low",
    }
    assert (
        await env.call_tool(make_tool_use("submit_findings", findings=[finding]))
        == "1 finding submitted\n1 citation checked: all hold."
    )
    stored = await env.store.get_deliverable(f"{TASK}/research-1", SYSTEM_SCOPE)
    assert stored == ResearchFindings.model_validate({"findings": [finding]})
    wrong = make_tool_use("submit_findings", findings=[{**finding, "confidence": "sure"}])
    assert "findings.0.confidence" in await env.call_tool(wrong)
