"""What of a task brief has room, and the procedures of the user's in it."""

from datetime import UTC, datetime

import pytest

from tests.support.agent_environment import NOON, TASK, TASK_REQUEST, TENANT, AgentEnvironment, make_tool_use
from waystation.agents.action_approvals import UnattendedPolicy
from waystation.agents.prompt_sections import SECTION_SHARES, PromptSection, compute_request_limit
from waystation.agents.task_brief import MAX_LISTED_DOCUMENTS, RESERVED_SECTIONS, PromptSpace
from waystation.context.tokens import estimate_text
from waystation.documents.documents import SourceDocument
from waystation.documents.procedures import ProcedureSource
from waystation.memory.embedders.local import WordLlamaEmbedder
from waystation.memory.passages import EmbeddedPassage, Passage
from waystation.testing.doubles import ListMemory, ScriptedModel

ROOMY, FIXED = 200_000, 4_000
TAGS = 50
"""Tokens of those around lists, which are not counted for any part."""
REVIEW = ProcedureSource(name="research.md", text="# How to do the research\nStart at the end.\n")
COOK = ProcedureSource(name="cook.md", text="---\nname: cook\ndescription: Baking bread at home\n---\nKnead.\n")
BROKEN = SourceDocument(name="skills/broken.md", text="---\nname: broken\n")
EVIDENCE = SourceDocument(name="harbour.md", text="The harbour was dug in 1811.\n")


async def load_task_brief(env: AgentEnvironment, window: int = ROOMY, notices: list[str] | None = None) -> str:
    told = notices if notices is not None else []
    return (
        await env.brief_builder.build_message(env.run_ref(), "m1", told, PromptSpace(window=window, fixed_tokens=FIXED))
    ).text


def many(count: int) -> list[SourceDocument]:
    return [SourceDocument(name=f"chapter-{number:04}-of-the-harbour.md", text="Silt.\n") for number in range(count)]


@pytest.mark.parametrize("window", [6_000, 8_000, 12_000, 24_000])
async def test_a_task_brief_leaves_the_conversation_its_room(bare_env: AgentEnvironment, window: int) -> None:
    await bare_env.open_task(many(300), asked=TASK_REQUEST.replace(procedures=(REVIEW, COOK)))
    held = sum(SECTION_SHARES[layer] for layer in RESERVED_SECTIONS)
    others = (
        100 - SECTION_SHARES[PromptSection.SYSTEM]
    )  # prompt and tools are over their share, so the rest is shared by the others
    room = (compute_request_limit(window) - FIXED) * (others - held) // others
    assert estimate_text(await load_task_brief(bare_env, window)) <= room + TAGS


async def test_names_of_documents_give_way_from_the_last_on(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(many(300))
    named = [(await load_task_brief(bare_env, window)).count("- chapter-") for window in (7_000, 11_000, ROOMY)]
    assert 0 < named[0] < named[1] < named[2] == MAX_LISTED_DOCUMENTS
    text = await load_task_brief(bare_env, 7_000)
    assert "- chapter-0000-of" in text
    assert f"- and {300 - named[0]} more; list_documents shows all" in text


async def test_what_all_agents_of_a_task_share_comes_first(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task([EVIDENCE], asked=TASK_REQUEST.replace(procedures=(REVIEW,), accept=("Brief",)))
    text = await load_task_brief(bare_env)
    order = ["<question>", "<accept>", "<output>", "<documents", "<procedures", "<step", "</task>", "<procedure name"]
    assert sorted(order, key=text.index) == order


async def test_procedures_are_listed_and_a_relevant_one_is_shown_whole(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task([EVIDENCE], asked=TASK_REQUEST.replace(procedures=(REVIEW, COOK)))
    text = await load_task_brief(bare_env)
    assert "- research: How to do the research" in text
    assert "- cook: Baking bread at home" in text
    assert "Start at the end." in text
    assert "Knead." not in text
    assert '<documents count="1">' in text


async def test_in_a_small_window_a_procedure_is_only_named(bare_env: AgentEnvironment) -> None:
    long = ProcedureSource(name="research.md", text="# How to do the research\n" + "Start at the end. " * 200)
    await bare_env.open_task([EVIDENCE], asked=TASK_REQUEST.replace(procedures=(long,)))
    text = await load_task_brief(bare_env, 6_000)
    assert "- research: How to do the research" in text
    assert "Start at the end." not in text


async def test_a_deadline_is_in_the_task_brief_where_one_was_set(bare_env: AgentEnvironment) -> None:
    by = datetime(2026, 11, 22, 7, 0, tzinfo=UTC)
    await bare_env.open_task(asked=TASK_REQUEST.replace(unattended=UnattendedPolicy(answer_by=by)))
    deadline = "<deadline>\n2026-11-22 07:00 UTC: after this time, no one approves more budget or tool calls"
    assert deadline in await load_task_brief(bare_env)


async def test_without_a_deadline_nothing_is_said_of_one(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task(
        asked=TASK_REQUEST.replace(unattended=UnattendedPolicy(answer_by=NOON, at_deadline="wait"))
    )
    assert "<deadline>" not in await load_task_brief(bare_env)


async def test_agents_read_procedures_by_their_tool_alone(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task([EVIDENCE], asked=TASK_REQUEST.replace(procedures=(REVIEW,)))
    agent = ScriptedModel([])
    run, terms = bare_env.run_ref(), bare_env.terms
    toolbox = await bare_env.agent_deps.build_agent_toolbox(run, terms, await bare_env.load_transcript())
    assert agent.calls == 0
    read = await toolbox.run(make_tool_use("read_skill", name="research"), await bare_env.make_tool_context())
    assert read.content == '<procedure name="research">\n# How to do the research\nStart at the end.\n</procedure>'
    refused = await toolbox.run(make_tool_use("read_document", name="research.md"), await bare_env.make_tool_context())
    assert refused.is_error
    assert "There is no document 'research.md'" in refused.content
    unknown = await toolbox.run(make_tool_use("read_skill", name="cook"), await bare_env.make_tool_context())
    assert unknown.content == "There is no procedure 'cook'. The procedures are: research."
    assert "No passage matches" in await bare_env.call_tool(make_tool_use("search_documents", query="start end"))
    assert await bare_env.call_tool(make_tool_use("list_documents")) == "harbour.md (1 line, 29 characters)"


async def test_without_procedures_there_is_no_tool_for_them(env: AgentEnvironment) -> None:
    toolbox = await env.agent_deps.build_agent_toolbox(env.run_ref(), env.terms, await env.load_transcript())
    assert "read_skill" not in {spec.name for spec in toolbox.visible_specs}


async def test_what_is_recalled_unasked_is_relevant(bare_env: AgentEnvironment) -> None:
    await bare_env.open_task()
    embedder = WordLlamaEmbedder()
    bare_env.memory = ListMemory(embedder.dimension)
    texts = ("We did all the research on silt in the harbour.", "The sourdough needs doing at noon.")
    for number, (text, vector) in enumerate(zip(texts, await embedder.embed(texts), strict=True)):
        passage = Passage(
            id=f"00000000-0000-5000-8000-{number:012}",
            tenant=TENANT,
            session="session",
            task_id=TASK,
            run_id=f"{TASK}/other",
            step_id="other",
            first_message="m1",
            last_message="m2",
            text=text,
            content_hash=text,
            created=NOON,
        )
        await bare_env.memory.upsert([EmbeddedPassage(passage=passage, dense=vector)])
    recollection = bare_env.brief_builder.memory_recall
    asked = await recollection.find(bare_env.run_ref(), "Do the research.", 1_000)
    assert len(asked) == len(texts)
    judging = type(recollection)(memory=bare_env.memory, embedder=embedder, redactor=bare_env.redactor)
    shown = await judging.find_relevant(bare_env.run_ref(), "Do the research.", 1_000)
    assert [excerpt.text for excerpt in shown] == [texts[0]]
