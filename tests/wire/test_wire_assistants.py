"""What an assistant is told of the MCP server, and the shapes in which it gets a report."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from anyio import create_memory_object_stream
from inline_snapshot import snapshot
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import INVALID_PARAMS, JSONRPCError, TextContent, jsonrpc_message_adapter
from pydantic import ValidationError

from tests.attacks.test_attacks_assistants import OWN, open_assistant_client, store_task
from tests.end_to_end.shell import ROOT
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.plugins.web.app import forward_messages
from waystation.plugins.web.assistant_gateway import ReportPart
from waystation.reports.markdown import split_into_sections
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import build_reader_scope
from waystation.tasks.view import TaskView

HELLO = (
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
    '"clientInfo":{"name":"x","version":"1"}}}\n'
)
REPORT = """# Which harbours?

## Depths

Nordvik carries three metres [a.md:1-1].

### At low water

Two [a.md:2-2].

```
## no heading
```

## Silt

It was closed [a.md:3-3].

## Sources

- a.md: lines 1, 2, 3

## Citations

Checked by code: all citations point to lines that exist (3 places).

## About this report

By hand.
"""


@pytest.fixture
def settings(without_server: Settings) -> Settings:
    return without_server.replace(offline=True)


async def store_report_task(settings: Settings) -> str:
    """A task of the assistant's own that is over, with a report that cites."""
    task = await store_task(settings, OWN, spent=1)
    store = await SqlStore.open(settings.database_url, utc_now)
    row = await store.get_task(task, build_reader_scope(settings.tenant))
    assert row.progress is not None
    report = await store.put_text(REPORT, row.ref.scope)
    await store.save_task_progress(task, row.progress.replace(report=report, reports=()))
    await store.aclose()
    return task


async def test_tools_say_what_they_do_to_the_world(settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        tools = (await asking.list_tools()).tools
    hints = {
        tool.name: " ".join(
            name.removesuffix("_hint")
            for name, value in (tool.annotations.model_dump() if tool.annotations else {}).items()
            if value is True
        )
        for tool in tools
    }
    assert hints == snapshot(
        {
            "submit_research": "open_world",
            "list_tasks": "read_only",
            "task_status": "read_only",
            "wait_for_task": "read_only",
            "list_approvals": "read_only",
            "approve": "idempotent open_world",
            "deny": "destructive idempotent",
            "get_report": "read_only",
            "recall": "read_only",
            "send_message": "",
            "deliver": "destructive idempotent",
            "cancel": "destructive idempotent",
        }
    )
    schemas = {tool.name: tool.output_schema for tool in tools}
    assert None not in schemas.values()
    status = schemas["task_status"] or {}
    assert status["properties"].keys() == TaskView.model_fields.keys()
    # Formats that JSON Schema does not have are warned of by clients, with every list.
    formats = set(re.findall(r'"format": "([^"]*)"', json.dumps([one.model_dump(mode="json") for one in tools])))
    assert formats <= {"date-time", "uri"}
    assert "grant" not in next(tool for tool in tools if tool.name == "approve").input_schema["properties"]


async def test_an_assistants_newest_tasks_are_listed_with_what_came_of_them(settings: Settings) -> None:
    task = await store_report_task(settings)
    async with open_assistant_client(settings) as asking:
        listed = await asking.call_tool("list_tasks", {"count": 1})
    assert listed.structured_content is not None
    (found,) = listed.structured_content["tasks"]
    assert (found["task_id"], found["has_report"], found["waiting_requests"]) == (task, True, 0)


async def test_a_report_is_read_whole_or_by_section_each_with_what_it_cites(settings: Settings) -> None:
    task = await store_report_task(settings)
    async with open_assistant_client(settings) as asking:
        parts = [
            ReportPart.model_validate(
                (await asking.call_tool("get_report", {"task": task, "section": section})).structured_content
            )
            for section in (None, "depths", "### At low water", "Silt")
        ]
        missing = await asking.call_tool("get_report", {"task": task, "section": "Tides"})
        (content,) = missing.content
        resources = [(one.uri, one.mime_type) for one in (await asking.list_resources()).resources]
    assert [[source.first_line for source in part.sources] for part in parts] == [[1, 2, 3], [1, 2], [2], [3]]
    assert parts[0].sections == ("Which harbours?", "Depths", "At low water", "Silt")
    assert parts[2].markdown == "### At low water\n\nTwo [a.md:2-2].\n\n```\n## no heading\n```"
    assert {part.checked for part in parts} == {"Checked by code: all citations point to lines that exist (3 places)."}
    assert isinstance(content, TextContent)
    assert content.text == (
        "there is no section 'Tides'; available sections: 'Which harbours?', 'Depths', 'At low water', 'Silt'"
    )
    assert resources == [(f"waystation://tasks/{task}/report", "text/markdown")]


def test_sections_of_a_text_without_headings_are_none() -> None:
    assert split_into_sections("no heading\n") == ()


async def test_a_status_is_a_few_lines_beside_its_data(settings: Settings) -> None:
    task = await store_report_task(settings)
    async with open_assistant_client(settings) as asking:
        status = await asking.call_tool("task_status", {"task": task})
    (content,) = status.content
    assert isinstance(content, TextContent)
    assert content.text.replace(task, "TASK").splitlines() == snapshot(
        ["TASK is done", "1 of 600,000 tokens spent", "to read the report, call get_report"]
    )


async def test_the_prompt_asks_for_a_question_and_takes_any_words(settings: Settings) -> None:
    async with open_assistant_client(settings) as asking:
        prompt = await asking.get_prompt("research_question", {"topic": "{depths} of <harbours>"})
    (message,) = prompt.messages
    assert isinstance(message.content, TextContent)
    assert "{depths} of <harbours>" in message.content.text
    assert "submit_research" in message.content.text


@contextmanager
def over_streams(home: Path) -> Generator[subprocess.Popen[str]]:
    """The server, which has answered once."""
    with subprocess.Popen(
        [sys.executable, "-m", "waystation.cli.main", "mcp"],
        cwd=ROOT,
        env={**os.environ, "WAYSTATION_HOME": str(home), "WAYSTATION_OFFLINE": "true"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(HELLO)
        server.stdin.flush()
        assert '"serverInfo"' in server.stdout.readline()
        yield server


@pytest.mark.parametrize("how", ["end of input", "Ctrl-C", "SIGTERM"])
def test_over_streams_it_ends_when_it_is_told_to(how: str, tmp_path: Path) -> None:
    with over_streams(tmp_path / "home") as server:
        if how != "end of input":
            server.send_signal(signal.SIGINT if how == "Ctrl-C" else signal.SIGTERM)
            server.wait(60)
        rest, said = server.communicate(timeout=60)
    assert (rest, said) == ("", "")


def test_over_streams_it_ends_as_at_an_end_of_input_when_its_client_is_gone_before_its_answers(tmp_path: Path) -> None:
    with over_streams(tmp_path / "home") as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdout.close()
        with suppress(BrokenPipeError):
            server.stdin.writelines(f'{{"jsonrpc":"2.0","id":{number},"method":"ping"}}\n' for number in range(2, 500))
            server.stdin.close()
        said = server.stderr.read()
    assert (said, server.returncode) == ("", 0)


def call_of(task: str) -> str:
    asked = '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"task_status","arguments":{"task":TASK}}}'
    return asked.replace("TASK", task)


NOT_MESSAGES = {
    call_of(r'"\ud800"'): (2, -32700),
    call_of("9" * 5_000): (None, -32700),
    call_of("[" * 5_000 + "]" * 5_000): (None, -32700),
    '{"jsonrpc":"2.0","id":"\\ud800","method":"tools/list"}': (None, -32700),
    '{"jsonrpc":"2.0","id":3,': (None, -32700),
    "hello": (None, -32700),
    '[{"jsonrpc":"2.0","id":4,"method":"tools/list"}]': (None, -32600),
    '{"jsonrpc":"2.0","id":5,"method":"tools/call","params":[1]}': (5, -32600),
    '{"id":"six","method":"ping"}': ("six", -32600),
    **{
        f'{{"jsonrpc":"2.0","id":{one},"method":"ping"}}': (None, -32600)
        for one in ("1.5", "NaN", "null", "true", "[]")
    },
    r'{"jsonrpc":"2.0","\u0069d":8.0,"method":"ping"}': (None, -32600),
}
"""Lines that are none, with the id and code of their answers."""


def test_over_streams_a_line_that_is_no_message_is_answered_and_the_session_goes_on(tmp_path: Path) -> None:
    silent = ("", '{"jsonrpc":"2.0","method":"notifications/x","params":[1]}')
    lines = [*silent, *NOT_MESSAGES, '{"jsonrpc":"2.0","id":9,"method":"ping"}']
    with over_streams(tmp_path / "home") as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write("".join(f"{line}\n" for line in lines))
        server.stdin.flush()
        *refused, last = [json.loads(server.stdout.readline()) for _ in (*NOT_MESSAGES, "ping")]
        rest = server.communicate(timeout=60)
    assert [(one["id"], one["error"]["code"]) for one in refused] == [*NOT_MESSAGES.values()]
    assert (last, rest) == ({"jsonrpc": "2.0", "id": 9, "result": {}}, ("", ""))


@pytest.mark.parametrize(
    "said", [r'"result":{"content":{"note":"\ud800"}}', '"result":5', r'"error":{"code":"\ud800"}']
)
async def test_who_waits_for_an_answer_that_is_none_hears_of_it(said: str) -> None:
    async def lines() -> AsyncGenerator[SessionMessage | Exception]:
        try:
            jsonrpc_message_adapter.validate_json(f'{{"jsonrpc":"2.0","id":7,{said}}}')
        except ValidationError as fault:
            yield fault

    async def to_client(_: SessionMessage) -> None:
        raise AssertionError

    heard, messages = create_memory_object_stream[SessionMessage | Exception](1)
    await forward_messages(lines(), heard, to_client)
    async with messages:
        (message,) = [item async for item in messages]
    assert isinstance(message, SessionMessage)
    assert isinstance(message.message, JSONRPCError)
    assert message.message.id == 7


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("research_question", {}, "the prompt research_question takes the arguments topic, purpose; required: topic"),
        (
            "research_question",
            {"topic": "a", "topics": "b"},
            "the prompt research_question takes the arguments topic, purpose; required: topic",
        ),
        ("question", {"topic": "a"}, "there is no prompt 'question'; available prompts: research_question"),
    ],
)
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_prompt_that_cannot_be_had_is_refused_with_the_cause(
    mode: str, name: str, arguments: dict[str, str], said: str, settings: Settings
) -> None:
    async with open_assistant_client(settings, mode=mode) as asking:
        with pytest.raises(MCPError, match=said) as refused:
            await asking.get_prompt(name, arguments)
    assert refused.value.code == INVALID_PARAMS


def test_a_name_that_no_assistant_can_have_is_refused_where_it_was_given(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["mcp", "--client", "My Desk"]) == 2
    assert capsys.readouterr().err.startswith("waystation: --client 'My Desk' is not a valid name: ")
