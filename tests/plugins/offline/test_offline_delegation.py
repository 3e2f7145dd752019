import pytest
from pydantic import JsonValue

from waystation.agents.prompt_sections import StatusMessage
from waystation.kernel.amount import Limit
from waystation.models.anthropic.received_requests import MessagesRequest
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.agent_request import AgentRequestView, TaskBrief, ToolCallRecord, parse_agent_request
from waystation.plugins.offline.research import (
    MANY_DOCUMENTS,
    MIN_PART_TOKENS,
    PARTS,
    PERCENT,
    READ_CHARACTERS,
    build_delegation_turn,
    build_research_turn,
)
from waystation.plugins.offline.responses import CHARACTERS_A_TOKEN, OfflineToolCall, build_call

ENOUGH = MIN_PART_TOKENS * 100 // PERCENT
LONG = PARTS * MIN_PART_TOKENS * CHARACTERS_A_TOKEN // MANY_DOCUMENTS
"""Characters of each document with which there is just enough to read."""
SIZES = build_call("list_documents", first=1, count=100)
LISTED = "- a.md (3 lines)\n- b.eml (1 line, dated 2026-01-02)"
DATED = ", dated 2026-01-02"


def request(
    documents: int, left: Limit, *, final: bool, sizes: list[int] | None = None, tools: str = "delegate list_documents"
) -> MessagesRequest:
    contract = f'<question>\nWhat?\n</question>\n<documents count="{documents}">\n{LISTED}\n</documents>'
    said = [contract, StatusMessage(step_id="research-1", remaining=left, final=final).shortest_text]
    told: list[JsonValue] = [{"type": "text", "text": text} for text in said]
    messages: list[JsonValue] = [{"role": "user", "content": told}]
    if sizes is not None:
        lines = [
            f"{number} (a, b).md (1,000 lines, {size:,} characters{DATED if number % 2 else ''})"
            for number, size in enumerate(sizes)
        ]
        listed = "\n".join([*lines, f"the list continues at number {len(lines) + 1} of {documents}"])
        use: JsonValue = {"type": "tool_use", "id": "t1", "name": SIZES.name, "input": SIZES.input}
        result: JsonValue = {"type": "tool_result", "tool_use_id": "t1", "content": listed}
        messages.append({"role": "assistant", "content": [use]})
        messages.append({"role": "user", "content": [result]})
    return MessagesRequest.model_validate(
        {
            "model": OFFLINE_MODEL,
            "max_tokens": 4_000,
            "messages": messages,
            "tools": [{"name": name, "input_schema": {}} for name in tools.split()],
        }
    )


def called(asked: MessagesRequest) -> tuple[OfflineToolCall, ...]:
    reply = build_delegation_turn(parse_agent_request(asked))
    return () if reply is None else reply.calls


@pytest.mark.parametrize("final", [True, False], ids=["nobody is asked", "a person is asked"])
def test_many_documents_are_divided_where_each_part_can_be_read(final: bool) -> None:
    def parts(documents: int, left: Limit) -> int:
        looked = called(request(documents, left, final=final))
        divided = called(request(documents, left, final=final, sizes=[LONG] * 100))
        assert looked == ((SIZES,) if divided else ())
        return len(divided)

    assert parts(MANY_DOCUMENTS, Limit(tokens=ENOUGH)) == PARTS
    assert parts(MANY_DOCUMENTS, Limit(tokens=ENOUGH - 1)) == 0
    assert parts(MANY_DOCUMENTS - 1, Limit(tokens=ENOUGH)) == 0
    assert parts(MANY_DOCUMENTS, Limit()) == PARTS


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ([LONG] * 100, PARTS),
        ([LONG - 1] * 100, 0),
        ([LONG * 2, 0], PARTS),
        ([120] * 99 + [5_000_000], 0),
        ([READ_CHARACTERS * 9], PARTS),
        ([], 0),
    ],
    ids=["enough", "too little", "enough in the mean", "one long among short ones", "long ones", "unknown"],
)
def test_what_is_quickly_read_is_not_divided_however_many_documents_it_is(sizes: list[int], parts: int) -> None:
    divided = called(request(MANY_DOCUMENTS, Limit(), final=True, sizes=sizes))
    assert [made.name for made in divided] == ["delegate"] * parts


def test_documents_with_and_without_a_date_are_known_by_name() -> None:
    assert parse_agent_request(request(2, Limit(), final=True)).brief.documents == ("a.md", "b.eml")


@pytest.mark.parametrize("tools", ["delegate", "list_documents"])
def test_nothing_is_divided_without_the_tools_for_it(tools: str) -> None:
    assert called(request(MANY_DOCUMENTS, Limit(), final=True, tools=tools)) == ()


def test_a_small_rest_is_no_reason_to_hurry_where_more_is_asked_for() -> None:
    asks, ends = (parse_agent_request(request(1, Limit(tokens=900), final=final)) for final in (False, True))
    assert (asks.remaining_tokens, asks.must_finish) == (900, False)
    assert (ends.remaining_tokens, ends.must_finish) == (900, True)


def test_a_submission_names_the_parts_that_subagents_did_not_finish() -> None:
    def part(title: str, state: str) -> ToolCallRecord:
        result = f'<subagent id="r.1" role="research" title="{title}" state="{state}">\n- a: "It rains." [a.md:1-1]'
        return ToolCallRecord(name="delegate", input={"title": title}, result=result)

    contract = TaskBrief(question="Does it rain?", document_count=300)
    asked = (part("Documents 1 to 75", "partial"), part("Documents 76 to 150", "done"))
    (handed_in,) = build_research_turn(AgentRequestView(brief=contract, exchanges=asked, max_tokens=2_000)).calls
    assert handed_in.input["open_questions"] == [
        "Not read to the end: Documents 1 to 75. The subagent that read them ended early.",
        "This step quotes 1 of 300 documents; the others were not read, or had no matching passage.",
    ]


def test_of_documents_that_nobody_read_it_does_not_say_that_nothing_matched() -> None:
    result = '<subagent id="r.1" role="research" title="All" state="partial">\nIt has found nothing.'
    asked = ToolCallRecord(name="delegate", input={"title": "Documents 1 to 300"}, result=result)
    contract = TaskBrief(question="Does it rain?", document_count=300)
    (handed_in,) = build_research_turn(AgentRequestView(brief=contract, exchanges=(asked,), max_tokens=2_000)).calls
    assert handed_in.input["open_questions"] == [
        "Not read to the end: Documents 1 to 300. The subagent that read them ended early."
    ]
