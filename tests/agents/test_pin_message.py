"""Pins by agents: of a message that they quote, under the cap of all pins, once for each call."""

from dataclasses import replace

import pytest

from tests.agents.office import TASK, TERMS, Office, done_to, never, use
from tests.unit.histories import prose
from waystation.agents.leg import LegRequest
from waystation.context.history import get_pinned_message_ids
from waystation.context.summary import build_summary_message
from waystation.context.transcript import Message, SummaryRecord, Text, ToolResult, Transcript, build_user_message
from waystation.documents.documents import DocumentMatch
from waystation.models.ports import ModelResponse
from waystation.testing import ScriptedModel, make_scripted_response

READ = make_scripted_response(use("read_document", "c1", name="harbour.md"))
SUBMIT = make_scripted_response(use("submit_findings", "c9", findings=[]))


def pinning(quote: str, call_id: str = "c2", **more: object) -> ModelResponse:
    return make_scripted_response(use("pin_message", call_id, quote=quote, **more))


async def after(office: Office, *replies: ModelResponse) -> Transcript:
    await office.leg(ScriptedModel([*replies, SUBMIT]))
    return await office.transcript()


def answer(transcript: Transcript, call_id: str = "c2") -> ToolResult:
    """The last result of this call."""
    results = [result for message in transcript.messages for result in message.tool_results]
    return [result for result in results if result.tool_use_id == call_id][-1]


async def test_a_tool_result_is_pinned_by_words_of_it(office: Office) -> None:
    log = await after(office, READ, pinning("it silted up within ten years"))
    assert get_pinned_message_ids(log) == {"m3"}
    assert answer(log) == ToolResult(
        tool_use_id="c2", content='pinned: the result of read_document {"name": "harbour.md"}'
    )


async def test_the_newest_earlier_message_with_the_words_is_meant_and_never_the_one_that_asks(office: Office) -> None:
    said = make_scripted_response(Text(text="So it silted up within ten years."), use("read_notes", "c3"))
    asks = make_scripted_response(
        Text(text="I keep “silted up within ten years”."), pinning("silted up within ten years").blocks[0]
    )
    log = await after(office, READ, said, asks)
    assert get_pinned_message_ids(log) == {"m4"}
    assert answer(log).content == "pinned: “So it silted up within ten years.”"


@pytest.mark.parametrize(
    ("quote", "error"),
    [("it never silted up", "No earlier message that you are shown whole has these words"), (" .", "quote: ")],
)
async def test_words_that_no_message_has_pin_nothing(office: Office, quote: str, error: str) -> None:
    log = await after(office, READ, pinning(quote))
    assert answer(log).is_error
    assert error in answer(log).content
    assert done_to(log) == ()


async def test_words_of_a_summary_pin_nothing_since_it_gives_way_to_the_next_one(office: Office) -> None:
    await office.said([build_user_message("m1", "Why?"), *turn("m2", "m3", "c1", "The dredger sank.")])
    record = SummaryRecord(
        id="c", strategy="window", covered=("m2", "m3"), summary=build_summary_message("c", "The dredger sank.")
    )
    fence = (await office.site()).fence
    await office.store.commit_compaction(fence, (await office.transcript()).version, record, (), None)
    log = await after(office, pinning("The dredger sank"))
    assert answer(log).is_error
    assert get_pinned_message_ids(log) == frozenset()


def turn(call: str, result: str, call_id: str, content: str) -> tuple[Message, Message]:
    return (
        Message(id=call, role="assistant", blocks=(use("recall", call_id, query="x"),)),
        Message(id=result, role="user", blocks=(ToolResult(tool_use_id=call_id, content=content),)),
    )


async def test_over_the_cap_the_answer_is_an_error_that_names_the_pins_and_a_pin_can_be_taken_back(
    office: Office,
) -> None:
    office.terms = TERMS.replace(window=10_000)
    await office.said(
        [
            build_user_message("m1", "Why?"),
            *turn("m2", "m3", "a1", f"The first list. {prose(2_400)}"),
            *turn("m4", "m5", "a2", f"The second list. {prose(2_400)}"),
        ]
    )
    log = await after(
        office,
        pinning("The first list", "p1"),
        pinning("The second list", "p2"),
        pinning("The second list", "p3", take_back=True),
        pinning("The first list", "p4", take_back=True),
        pinning("The second list", "p5"),
    )
    refused = answer(log, "p2")
    assert refused.is_error
    assert "pins may have 2,000 together" in refused.content
    assert refused.content.endswith('Pins are: m3, the result of recall {"query": "x"}')
    assert answer(log, "p3").content.startswith("This is no pin of yours.")
    assert answer(log, "p4").content == 'no longer pinned: the result of recall {"query": "x"}'
    assert get_pinned_message_ids(log) == {"m5"}


async def test_a_pin_of_a_person_is_not_taken_back_by_an_agent(office: Office) -> None:
    log = await after(office, READ, pinning("silted up", "p1"))
    (own,) = done_to(log)
    persons = log.replace(records=(own.replace(id="edit-1"),))
    site = replace(await office.site(call_id="p2"), transcript=persons)
    call = use("pin_message", "p2", quote="silted up", take_back=True)
    result = await office.desk.toolbox("research").run(call, site)
    assert result.is_error
    assert site.records == []


class Crash(Exception):
    pass


class CrashingSearch:
    async def search(
        self, task_id: str, query: str, limit: int, among: range | None = None
    ) -> tuple[DocumentMatch, ...]:
        raise Crash


async def test_a_retry_after_a_crash_finds_the_pin_and_makes_no_second_one(office: Office) -> None:
    then = make_scripted_response(pinning("silted up").blocks[0], use("search_documents", "c3", query="harbour"))
    office.model = ScriptedModel([READ, then])
    loop = replace(office.loop, desk=replace(office.desk, search=CrashingSearch()))
    with pytest.raises(Crash):
        await loop.run(LegRequest(run=office.run_ref(), leg=1, limit=office.limit, terms=office.terms), never)
    crashed = await office.transcript()
    assert [record.id for record in done_to(crashed)] == ["pin-c2"]
    assert crashed.messages[-1].tool_uses
    log = await after(office)
    assert [record.id for record in done_to(log)] == ["pin-c2"]
    assert get_pinned_message_ids(log) == {"m3"}
    assert answer(log).content == 'pinned: the result of read_document {"name": "harbour.md"}'
    assert (await office.store.totals(f"{TASK}/research-1")).turns == 3
