import re
from dataclasses import replace

import pytest

from tests.agents.full_context import compressed, conversation, summary
from tests.agents.office import NAME, NAME_PLACEHOLDER, SECRET, SECRET_PLACEHOLDER, Office, use
from tests.unit.histories import research
from waystation.context.pipeline import MOST_SOURCES
from waystation.context.summary import SOURCES, parse_ledger_entries
from waystation.context.transcript import build_user_message
from waystation.testing import ScriptedModel


@pytest.fixture
async def hidden(office: Office) -> Office:
    """An office whose agent had a long conversation that was summarised."""
    await office.said(conversation())
    await compressed(office, ScriptedModel([summary()]))
    return office


async def sources_of(office: Office) -> list[tuple[str, str, str]]:
    """Passage, first and last message of what the summary's ledger names."""
    (record,) = (await office.transcript()).compactions
    assert record.type == "summarised"
    (line,) = parse_ledger_entries(record.summary, SOURCES)
    return re.findall(r"(p[0-9a-f]{8}) (m\d+)-(m\d+)", line)


async def test_a_summary_names_the_passages_behind_it_in_their_order(hidden: Office) -> None:
    named = await sources_of(hidden)
    assert 1 < len(named) <= MOST_SOURCES
    (record,) = (await hidden.transcript()).compactions
    assert record.type == "summarised"
    assert (named[0][1], named[-1][2]) == (record.covered[0], record.covered[-1])
    stored = {item.passage.short_id: item.passage for item in hidden.memory.passages.values()}
    assert all(stored[name].first_message == first for name, first, _ in named)


async def test_what_a_summary_names_is_expanded_to_the_messages_that_were_said(hidden: Office) -> None:
    name, first, _ = (await sources_of(hidden))[0]
    text = await hidden.call(use("expand", id=name))
    original = next(message for message in (await hidden.transcript()).messages if message.id == first)
    assert f"[{first} {original.role}" in text
    assert "calls recall" in text
    assert "result of recall" in text


async def test_a_long_stretch_is_read_page_by_page(hidden: Office) -> None:
    name, _, _ = (await sources_of(hidden))[0]
    whole, first, pages = "", 0, 0
    while True:
        text, _, rest = (await hidden.call(use("expand", id=name, first=first))).partition("\ncontinues at character ")
        whole, pages = whole + text, pages + 1
        if not rest:
            break
        first = int(rest.split(" of ")[0].replace(",", ""))
    assert pages > 1
    assert whole.count("result of recall") == 1
    assert "there is none from number 999,999 on" in await hidden.call(use("expand", id=name, first=999_999))


async def test_a_message_of_this_conversation_is_shown_with_its_result(hidden: Office) -> None:
    text = await hidden.call(use("expand", id="m10"))
    assert text.startswith("[m10 assistant calls recall]")
    assert f"[m11 result of recall] {NAME} kept the harbour." in text
    assert (await hidden.call(use("expand", id="m999"))).endswith("has no message m999.")


async def test_any_message_of_the_conversation_of_a_passage_is_shown_by_both_names(hidden: Office) -> None:
    (name, _, _), *_ = await sources_of(hidden)
    assert await hidden.call(use("expand", id=f"{name}/m10")) == await hidden.call(use("expand", id="m10"))
    assert (await hidden.call(use("expand", id=f"{name}/m999"))).endswith(
        f"conversation of {name} has no message m999."
    )
    assert (await hidden.call(use("expand", id="p00000000/m10"))).startswith("ERROR No passage is called")


async def test_originals_are_shown_as_any_result_of_a_tool_is(office: Office) -> None:
    await office.said([build_user_message("m1", f"{NAME} has the key {SECRET}.")])
    assert await office.call(use("expand", id="m1")) == f"[m1 user] {NAME} has the key {SECRET_PLACEHOLDER}."


async def test_another_session_or_tenant_has_no_such_passage(hidden: Office) -> None:
    (name, _, _), *_ = await sources_of(hidden)
    site = await hidden.site()
    for run in (site.run.replace(session="another"), site.run.replace(tenant="another")):
        elsewhere = replace(site, run=run)
        result = await hidden.desk.toolbox("research").run(use("expand", id=name), elsewhere)
        assert result.is_error
        assert result.content == f"No passage is called {name!r}. Use an id that recall or a summary gives."
    assert (await hidden.call(use("expand", id="p%"))).startswith("ERROR No passage is called")


async def test_recalled_passages_have_ids_that_can_be_expanded(hidden: Office) -> None:
    found = await hidden.call(use("recall", query=f"{NAME} kept"))
    assert NAME_PLACEHOLDER in found
    for name in re.findall(r'id="(p[0-9a-f]{8})', found):
        assert not (await hidden.call(use("expand", id=name))).startswith("ERROR")


async def test_a_later_summary_still_names_what_stands_behind_the_first_one(hidden: Office) -> None:
    earliest = (await sources_of(hidden))[0][0]
    await hidden.said(research(12, 1_300, tool="recall", start=14))
    await compressed(hidden, ScriptedModel([summary("It silted up again.")]), known_records=1)
    newest = (await hidden.transcript()).compactions[-1]
    assert newest.type == "summarised"
    (line,) = parse_ledger_entries(newest.summary, SOURCES)
    assert line.startswith(f"{earliest} ")
    assert len(line.split("; ")) <= MOST_SOURCES
