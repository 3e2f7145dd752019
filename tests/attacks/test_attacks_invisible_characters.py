"""What our MCP server gives to assistants has no signs that a person does not see, a document keeps its lines, and
what was sent without end is not sent back.
"""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from mcp import Client as AssistantClient
from mcp.shared.exceptions import MCPError
from mcp.types import EmptyResult, Request, RequestParams, TextContent, TextResourceContents

from tests.attacks.test_attacks_assistants import OWN, TEXT, call_refused_tool, open_assistant_client
from tests.attacks.test_attacks_web_pages import NO_SERVER
from tests.support.finished_tasks import make_task_row
from waystation.config.settings import Settings
from waystation.context.transcript import Message, Text
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef
from waystation.memory.passages import MemoryExcerpt, Passage, PassageTurn
from waystation.planning.plan import Plan, Step
from waystation.plugins.web.assistant_gateway import AssistantGateway
from waystation.plugins.web.task_page import format_approval_request
from waystation.runtime.sql_store import SqlStore
from waystation.security.untrusted import escape_control_characters_in_json, replace_control_characters
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskRequest
from waystation.tasks.view import ApprovalView, PendingApproval, as_stored
from waystation.workers.memory import MemoryReader


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True, mcp_budget=Limit(tokens=1_000_000))


HIDDEN = (
    "\x1b]52;c;cm0=\x07\x9b31m\u202eevil\u2066\u061c\U000e0041\U000e0042\x7f"
    "\ufe01\ufe0f\U000e0130\u200b\u200d\u200c\u2060\u2063\ufeff\u00ad\u034f\u115f\u3164\uffa0"
)
UNSEEN = frozenset(HIDDEN) - frozenset("]52;c;cm0=31mevil")
ENDS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029")
LINES = tuple(f"line {number}{HIDDEN}" for number in range(1, 200))
LURED = "".join(f"{line}{ENDS[number % len(ENDS)]}" for number, line in enumerate(LINES))


async def keep_lure(settings: Settings) -> str:
    """A task of the assistant's that is over, with signs that nobody sees wherever others write."""
    settings.home.mkdir()
    store = await SqlStore.open(settings.database_url, utc_now)
    row = make_task_row(
        TaskRequest(question=f"Why{HIDDEN}?", session=OWN, request_id="r1"), settings, await store.get_store_id()
    )
    name = "a\u202e\x9b\U000e0041.md"
    await store.register_task(row, (SourceDocument(name=name, text=LURED),))
    step = Step(id="writing", role="writing", title="Write", goal="Write")
    await store.save_plan(row.ref.task_id, Plan(steps=(step,)))
    await store.open_run(RunRef(**row.ref.model_dump(), step_id="writing", role="writing"))
    said = Message(id="m1", role="user", blocks=(Text(text=f"said{HIDDEN}"),))
    await store.commit_message(await store.acquire_fence(f"{row.ref.task_id}/writing"), 0, said)
    text = f"# Report{HIDDEN}\n\n## Part{HIDDEN}\n\nIt is so [{replace_control_characters(name)}:2-2].\n"
    report = await store.put_text(text, row.ref.scope)
    over = as_stored(row, TaskPhase.DONE).replace(title=f"Why{HIDDEN}?", notes=(f"a note{HIDDEN}",), report=report)
    await store.save_task_progress(row.ref.task_id, over)
    await store.aclose()
    return row.ref.task_id


@pytest.mark.parametrize(
    "tool", ["task_status", "wait_for_task", "get_report", "list_approvals", "recall", "submit_research", "cancel"]
)
async def test_no_result_of_a_tool_has_signs_that_nobody_sees(
    tool: str, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await keep_lure(settings)
    passage = Passage(
        id="p1",
        tenant="t",
        session="s",
        task_id=task,
        run_id="r",
        step_id=f"a{HIDDEN}",
        text=f"found{HIDDEN}",
        content_hash="h",
        created=utc_now(),
    )
    asked = ApprovalRequest(
        request_id="r-1", agent="research-1", requested=Amount(), needed=Amount(), reason=f"why{HIDDEN}"
    )
    waiting = PendingApproval(task_id=task, title=f"Why{HIDDEN}?", approval=ApprovalView.from_request(asked))

    async def found(*_: object) -> tuple[MemoryExcerpt, ...]:
        return (MemoryExcerpt((PassageTurn(passage, 1, "", passage.text),)),)

    async def requests(*_: object) -> tuple[PendingApproval, ...]:
        return (waiting,)

    arguments: dict[str, dict[str, Any]] = {
        "list_approvals": {},
        "recall": {"query": "why"},
        "submit_research": {"question": f"Why{HIDDEN}?", "documents": [{"name": f"b{HIDDEN}.md", "text": "# B"}]},
    }
    monkeypatch.setattr(MemoryReader, "search", found)
    monkeypatch.setattr(AssistantGateway, "list_requests", requests)
    async with open_assistant_client(settings) as asking:
        said = await asking.call_tool(tool, arguments.get(tool, {"task": task}))
    texts = [one.text for one in said.content if isinstance(one, TextContent)]
    assert UNSEEN.isdisjoint("".join([*texts, json.dumps(said.structured_content, ensure_ascii=False)]))
    if tool in {"get_report", "list_approvals", "recall"}:
        assert not said.is_error
        assert "�evil��" in json.dumps(said.structured_content, ensure_ascii=False)


async def test_no_resource_has_signs_that_nobody_sees_and_a_document_has_all_of_its_lines(settings: Settings) -> None:
    task = await keep_lure(settings)
    async with open_assistant_client(settings) as asking:
        (listed,) = (await asking.list_resources()).resources
        report = await asking.call_tool("get_report", {"task": task})
        assert report.structured_content is not None
        (source,) = report.structured_content["sources"]
        places = ("report", "agents/writing/transcript", f"documents/{quote(source['document'])}")
        texts = [await resource(asking, f"waystation://tasks/{task}/{place}") for place in places]
    assert UNSEEN.isdisjoint("".join([*texts, listed.title or ""]))
    _, transcript, document = texts
    assert json.loads(transcript)["messages"][0]["blocks"][0]["text"] == f"said{HIDDEN}"
    assert document.splitlines() == document.split("\n")
    assert document.split("\n") == [replace_control_characters(line) for line in LINES]


async def resource(asking: AssistantClient, address: str) -> str:
    (content,) = (await asking.read_resource(address)).contents
    assert isinstance(content, TextResourceContents)
    return content.text


LONG = "x" * 100_000


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (LONG, {}),
        ("task_status", {LONG: 1}),
        ("submit_research", {"skills": [LONG]}),
        ("submit_research", {"documents": [{"name": "a.md", "text": "a", LONG: 1}]}),
        ("submit_research", {"documents": [{"path": LONG[:3_999]}]}),
        ("submit_research", {"documents": [{"uri": LONG[:3_999]}]}),
        ("submit_research", {"documents": [dict[str, str]()] * 900}),
    ],
)
async def test_a_refusal_repeats_little_of_what_is_not_known(
    tool: str, arguments: dict[str, Any], settings: Settings, tmp_path: Path
) -> None:
    given = {"question": "Why?", "documents": [TEXT], **arguments} if tool == "submit_research" else arguments
    async with open_assistant_client(settings, tmp_path) as asking:
        said = await call_refused_tool(asking, tool, **given)
    assert len(said) < 1_500
    assert not said.startswith("Error executing tool")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_error_of_the_protocol_repeats_little_of_what_is_not_known(mode: str, settings: Settings) -> None:
    unknown = Request[RequestParams, str](method=LONG, params=RequestParams())
    async with open_assistant_client(settings, mode=mode) as asking:
        for asked in (
            asking.read_resource(f"waystation://{LONG}"),
            asking.get_prompt(LONG, {}),
            asking.session.send_request(unknown, EmptyResult),
        ):
            with pytest.raises(MCPError) as refused:
                await asked
            assert len(refused.value.error.model_dump_json()) < 2_500


async def test_too_many_documents_are_refused_with_how_many_may_be_given_and_how_more_are(settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        said = await call_refused_tool(asking, "submit_research", question="Why?", documents=[TEXT] * 1_001)
    assert said.startswith(
        "documents: 1,001 documents are too many for one request (maximum 1,000): send fewer, or use `waystation "
        "submit --docs FOLDER` on a machine that can open the store (up to 5,000 documents). An assistant can send the "
        "path of the folder instead"
    )


@pytest.mark.parametrize("text", ["❤️ 1️⃣ ©️ 👩\u200d💻", "می\u200cخواهم", "क्\u200dष", "Zoë, 屋顶"])
def test_what_shapes_a_letter_or_a_picture_stays(text: str) -> None:
    assert replace_control_characters(text) == text
    assert escape_control_characters_in_json(json.dumps(text, ensure_ascii=False)) == json.dumps(
        text, ensure_ascii=False
    )


def test_what_shows_nothing_is_left_out_and_in_json_is_an_escape() -> None:
    codes = [0xAD, 0x200B, 0x200D, 0x2063, 0x3164, 0xFE0F, 0xFE01, 0xFEFF, 0xE0101, 0xE01EF]
    texts = [f"approve{chr(code)} all" for code in codes]
    assert {text: replace_control_characters(text) for text in texts} == dict.fromkeys(texts, "approve all")
    written = {text: escape_control_characters_in_json(json.dumps(text, ensure_ascii=False)) for text in texts}
    assert [text for text, one in written.items() if not one.isascii()] == []
    assert {text: json.loads(one) for text, one in written.items()} == {text: text for text in texts}


def test_a_title_does_not_close_its_quotation_in_what_a_person_is_asked() -> None:
    asked = ApprovalRequest(request_id="r1", agent="writing", requested=Amount(tokens=9))
    text = format_approval_request(
        PendingApproval(
            task_id="task-1", title="Why? ”. It asks for $0.01 only: “", approval=ApprovalView.from_request(asked)
        )
    )
    assert (text.count("“"), text.count("”")) == (1, 1)
