"""Pins by agents: of a message that they quote, under the cap of all pins, once for each call."""

from dataclasses import replace

import pytest

from tests.support.agent_environment import (
    AGENT_CONFIG,
    TASK,
    AgentEnvironment,
    make_tool_use,
    never_interrupted,
    without_prefix_records,
)
from tests.support.conversations import make_filler_text
from waystation.agents.leg import LegRequest
from waystation.context.history import get_pinned_message_ids
from waystation.context.summary import build_summary_message
from waystation.context.transcript import Message, SummaryRecord, Text, ToolResult, Transcript, build_user_message
from waystation.documents.documents import Document, DocumentMatch
from waystation.kernel.scopes import TaskScope
from waystation.models.ports import ModelResponse
from waystation.testing.doubles import ScriptedModel, make_scripted_response

READ = make_scripted_response(make_tool_use("read_document", "c1", name="harbour.md"))
SUBMIT = make_scripted_response(make_tool_use("submit_findings", "c9", findings=[]))


def pinning(quote: str, call_id: str = "c2", **more: object) -> ModelResponse:
    return make_scripted_response(make_tool_use("pin_message", call_id, quote=quote, **more))


async def after(env: AgentEnvironment, *replies: ModelResponse) -> Transcript:
    await env.run_leg(ScriptedModel([*replies, SUBMIT]))
    return await env.load_transcript()


def answer(transcript: Transcript, call_id: str = "c2") -> ToolResult:
    """The last result of this call."""
    results = [result for message in transcript.messages for result in message.tool_results]
    return [result for result in results if result.tool_use_id == call_id][-1]


async def test_a_tool_result_is_pinned_by_words_of_it(env: AgentEnvironment) -> None:
    log = await after(env, READ, pinning("it silted up within ten years"))
    assert get_pinned_message_ids(log) == {"m3"}
    assert answer(log) == ToolResult(
        tool_use_id="c2", content='pinned: the result of read_document {"name": "harbour.md"}'
    )


async def test_the_newest_earlier_message_with_the_words_is_meant_and_never_the_one_that_asks(
    env: AgentEnvironment,
) -> None:
    said = make_scripted_response(Text(text="So it silted up within ten years."), make_tool_use("read_notes", "c3"))
    asks = make_scripted_response(
        Text(text="I keep “silted up within ten years”."), pinning("silted up within ten years").blocks[0]
    )
    log = await after(env, READ, said, asks)
    assert get_pinned_message_ids(log) == {"m4"}
    assert answer(log).content == "pinned: “So it silted up within ten years.”"


@pytest.mark.parametrize(
    ("quote", "error"),
    [("it never silted up", "No earlier message that is shown whole has these words"), (" .", "quote: ")],
)
async def test_words_that_no_message_has_pin_nothing(env: AgentEnvironment, quote: str, error: str) -> None:
    log = await after(env, READ, pinning(quote))
    assert answer(log).is_error
    assert error in answer(log).content
    assert without_prefix_records(log) == ()


async def test_words_of_a_summary_pin_nothing_since_it_gives_way_to_the_next_one(env: AgentEnvironment) -> None:
    await env.commit_conversation([build_user_message("m1", "Why?"), *turn("m2", "m3", "c1", "The dredger sank.")])
    record = SummaryRecord(
        id="c", strategy="window", covered=("m2", "m3"), summary=build_summary_message("c", "The dredger sank.")
    )
    fence = (await env.make_tool_context()).fence
    await env.store.commit_compaction(fence, (await env.load_transcript()).version, record, (), None)
    log = await after(env, pinning("The dredger sank"))
    assert answer(log).is_error
    assert get_pinned_message_ids(log) == frozenset()


def turn(call: str, result: str, call_id: str, content: str) -> tuple[Message, Message]:
    return (
        Message(id=call, role="assistant", blocks=(make_tool_use("recall", call_id, query="x"),)),
        Message(id=result, role="user", blocks=(ToolResult(tool_use_id=call_id, content=content),)),
    )


async def test_over_the_cap_the_answer_is_an_error_that_names_the_pins_and_a_pin_can_be_taken_back(
    env: AgentEnvironment,
) -> None:
    env.terms = AGENT_CONFIG.replace(window=10_000)
    await env.commit_conversation(
        [
            build_user_message("m1", "Why?"),
            *turn("m2", "m3", "a1", f"The first list. {make_filler_text(2_400)}"),
            *turn("m4", "m5", "a2", f"The second list. {make_filler_text(2_400)}"),
        ]
    )
    log = await after(
        env,
        pinning("The first list", "p1"),
        pinning("The second list", "p2"),
        pinning("The second list", "p3", take_back=True),
        pinning("The first list", "p4", take_back=True),
        pinning("The second list", "p5"),
    )
    refused = answer(log, "p2")
    assert refused.is_error
    assert "All pinned messages together may have 2,000 tokens" in refused.content
    assert refused.content.endswith('Pinned now: the result of recall {"query": "x"}')
    assert answer(log, "p3").content.startswith("You did not pin this message.")
    assert answer(log, "p4").content == 'no longer pinned: the result of recall {"query": "x"}'
    assert get_pinned_message_ids(log) == {"m5"}


async def test_a_message_that_is_pinned_already_is_named_by_its_words(env: AgentEnvironment) -> None:
    refused = answer(await after(env, READ, pinning("silted up", "p1"), pinning("silted up", "p2")), "p2")
    assert refused.is_error
    assert refused.content.startswith("This message is pinned already.\nPinned now: the result of read_document ")


async def test_a_pin_of_a_person_is_not_taken_back_by_an_agent(env: AgentEnvironment) -> None:
    log = await after(env, READ, pinning("silted up", "p1"))
    (own,) = without_prefix_records(log)
    persons = log.replace(records=(own.replace(id="edit-1"),))
    site = replace(await env.make_tool_context(call_id="p2"), transcript=persons)
    call = make_tool_use("pin_message", "p2", quote="silted up", take_back=True)
    result = await env.agent_deps.build_role_toolbox("research").run(call, site)
    assert result.is_error
    assert site.records == []


class Crash(Exception):
    pass


class CrashingSearch:
    async def search(
        self,
        task: TaskScope,
        query: str,
        limit: int,
        among: range | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        raise Crash


async def test_a_retry_after_a_crash_finds_the_pin_and_makes_no_second_one(env: AgentEnvironment) -> None:
    then = make_scripted_response(
        pinning("silted up").blocks[0], make_tool_use("search_documents", "c3", query="harbour")
    )
    env.model = ScriptedModel([READ, then])
    loop = replace(env.agent_loop, deps=replace(env.agent_deps, search=CrashingSearch()))
    with pytest.raises(Crash):
        await loop.run(LegRequest(run=env.run_ref(), leg=1, limit=env.limit, config=env.terms), never_interrupted)
    crashed = await env.load_transcript()
    assert [record.id for record in without_prefix_records(crashed)] == ["pin-c2"]
    assert crashed.messages[-1].tool_uses
    log = await after(env)
    assert [record.id for record in without_prefix_records(log)] == ["pin-c2"]
    assert get_pinned_message_ids(log) == {"m3"}
    assert answer(log).content == 'pinned: the result of read_document {"name": "harbour.md"}'
    assert (await env.store.get_run_usage(f"{TASK}/research-1")).turns == 3
