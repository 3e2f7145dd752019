import re
from dataclasses import replace

import pytest

from tests.support.agent_environment import (
    NAME,
    NAME_PLACEHOLDER,
    SECRET,
    SECRET_PLACEHOLDER,
    AgentEnvironment,
    make_tool_use,
)
from tests.support.conversations import make_research_turns
from tests.support.full_context import make_conversation, make_summary_response, run_compaction
from waystation.context.summary import SOURCES_PREFIX, parse_ledger_entries
from waystation.context.transcript import build_user_message
from waystation.memory.passage_builder import MAX_SOURCES
from waystation.testing.doubles import ScriptedModel


@pytest.fixture
async def hidden(env: AgentEnvironment) -> AgentEnvironment:
    """An office whose agent had a long conversation that was summarised."""
    await env.commit_conversation(make_conversation())
    await run_compaction(env, ScriptedModel([make_summary_response()]))
    return env


async def sources_of(env: AgentEnvironment) -> list[tuple[str, str, str]]:
    """Passage, first and last message of what the summary's ledger names."""
    (record,) = (await env.load_transcript()).compactions
    assert record.type == "summarised"
    (line,) = parse_ledger_entries(record.summary, SOURCES_PREFIX)
    return re.findall(r"(p[0-9a-f]{8}) (m\d+)-(m\d+)", line)


async def test_a_summary_names_the_passages_behind_it_in_their_order(hidden: AgentEnvironment) -> None:
    named = await sources_of(hidden)
    assert 1 < len(named) <= MAX_SOURCES
    (record,) = (await hidden.load_transcript()).compactions
    assert record.type == "summarised"
    assert (named[0][1], named[-1][2]) == (record.covered[0], record.covered[-1])
    stored = {item.passage.short_id: item.passage for item in hidden.memory.passages.values()}
    assert all(stored[name].first_message == first for name, first, _ in named)


async def test_what_a_summary_names_is_expanded_to_the_messages_that_were_said(hidden: AgentEnvironment) -> None:
    name, first, _ = (await sources_of(hidden))[0]
    text = await hidden.call_tool(make_tool_use("expand", id=name))
    original = next(message for message in (await hidden.load_transcript()).messages if message.id == first)
    assert f"[{first} {original.role}" in text
    assert "calls recall" in text
    assert "result of recall" in text


async def test_a_long_stretch_is_read_page_by_page(hidden: AgentEnvironment) -> None:
    name, _, _ = (await sources_of(hidden))[0]
    whole, first, pages = "", 0, 0
    while True:
        text, _, rest = (await hidden.call_tool(make_tool_use("expand", id=name, first=first))).partition(
            "\ncontinues at character "
        )
        whole, pages = whole + text, pages + 1
        if not rest:
            break
        first = int(rest.split(" of ")[0].replace(",", ""))
    assert pages > 1
    assert whole.count("result of recall") == 1
    assert "character 999,999 is beyond its end" in await hidden.call_tool(
        make_tool_use("expand", id=name, first=999_999)
    )


async def test_a_message_of_this_conversation_is_shown_with_its_result(hidden: AgentEnvironment) -> None:
    text = await hidden.call_tool(make_tool_use("expand", id="m10"))
    assert text.startswith("[m10 assistant calls recall]")
    assert f"[m11 result of recall] {NAME} kept the harbour." in text
    assert (await hidden.call_tool(make_tool_use("expand", id="m999"))).endswith("has no message m999.")


async def test_any_message_of_the_conversation_of_a_passage_is_shown_by_both_names(hidden: AgentEnvironment) -> None:
    (name, _, _), *_ = await sources_of(hidden)
    assert await hidden.call_tool(make_tool_use("expand", id=f"{name}/m10")) == await hidden.call_tool(
        make_tool_use("expand", id="m10")
    )
    assert (await hidden.call_tool(make_tool_use("expand", id=f"{name}/m999"))).endswith(
        f"conversation of {name} has no message m999."
    )
    assert (await hidden.call_tool(make_tool_use("expand", id="p00000000/m10"))).startswith(
        "ERROR No passage is called"
    )


async def test_originals_are_shown_as_any_result_of_a_tool_is(env: AgentEnvironment) -> None:
    await env.commit_conversation([build_user_message("m1", f"{NAME} has the key {SECRET}.")])
    assert (
        await env.call_tool(make_tool_use("expand", id="m1")) == f"[m1 user] {NAME} has the key {SECRET_PLACEHOLDER}."
    )


async def test_another_session_or_tenant_has_no_such_passage(hidden: AgentEnvironment) -> None:
    (name, _, _), *_ = await sources_of(hidden)
    site = await hidden.make_tool_context()
    for run in (site.run.replace(session="another"), site.run.replace(tenant="another")):
        elsewhere = replace(site, run=run)
        result = await hidden.agent_deps.build_role_toolbox("research").run(make_tool_use("expand", id=name), elsewhere)
        assert result.is_error
        assert result.content == f"No passage is called {name!r}. Use an id that recall or a summary gives."
    assert (await hidden.call_tool(make_tool_use("expand", id="p%"))).startswith("ERROR No passage is called")


async def test_recalled_passages_have_ids_that_can_be_expanded(hidden: AgentEnvironment) -> None:
    found = await hidden.call_tool(make_tool_use("recall", query=f"{NAME} kept"))
    assert NAME_PLACEHOLDER in found
    for name in re.findall(r'id="(p[0-9a-f]{8})', found):
        assert not (await hidden.call_tool(make_tool_use("expand", id=name))).startswith("ERROR")


async def test_a_later_summary_still_names_what_stands_behind_the_first_one(hidden: AgentEnvironment) -> None:
    earliest = (await sources_of(hidden))[0][0]
    await hidden.commit_conversation(make_research_turns(12, 1_300, tool="recall", start=14))
    await run_compaction(hidden, ScriptedModel([make_summary_response("It silted up again.")]), known_records=1)
    newest = (await hidden.load_transcript()).compactions[-1]
    assert newest.type == "summarised"
    (line,) = parse_ledger_entries(newest.summary, SOURCES_PREFIX)
    assert line.startswith(f"{earliest} ")
    assert len(line.split("; ")) <= MAX_SOURCES
