"""Tool servers that send without end what no call asked for: their connection ends, and the worker's memory does not
grow.
"""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from aiohttp import web
from mcp.types import JSONRPCMessage
from pydantic import JsonValue

from tests.attacks.flooding_server import JUNK, LARGE, iter_unsolicited_messages, make_answer
from tests.support.mcp_tool_servers import ToolCaller, make_sample_server_entry, open_servers
from waystation.kernel.errors import ToolServerFailed
from waystation.mcp import servers as servers_module
from waystation.mcp import session as session_module

SCRIPT = Path(__file__).with_name("flooding_server.py")
MOST_GROWTH = 150_000_000
"""Bytes: a few times what the largest burst takes."""


def resident() -> int:
    return psutil.Process().memory_info().rss


@pytest.mark.parametrize("kind", ["ping", "sampling", "logging", "answers", "large", "nonsense", "blank"])
async def test_a_program_that_floods_is_ended_with_a_clear_error(kind: str, tmp_path: Path) -> None:
    entry: JsonValue = {"command": sys.executable, "args": [str(SCRIPT), kind], "timeout": 120}
    async with aclosing(open_servers(tmp_path, mill=entry)) as servers:
        bench = ToolCaller(servers)
        await bench.find_tool_spec("echo")
        before = resident()
        with pytest.raises(
            ToolServerFailed,
            match=r"the tool server mill was closed because it sent too many (requests|.*answer no call)",
        ):
            await bench.call_tool("echo")
        assert resident() - before < MOST_GROWTH


@pytest.mark.parametrize(("kind", "most"), [("object", 3), ("list", 0), ("words", 0)])
async def test_lines_that_are_no_message_count_by_their_size_before_they_are_read(
    kind: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = 0
    validate = session_module.jsonrpc_message_adapter.validate_json

    def counted(line: str, *, by_name: bool) -> JSONRPCMessage:
        nonlocal read
        read += line == JUNK[kind] + "\n"
        return validate(line, by_name=by_name)

    monkeypatch.setattr(session_module, "jsonrpc_message_adapter", SimpleNamespace(validate_json=counted))
    monkeypatch.setattr(session_module, "UNSOLICITED_BYTES_AT_ONCE", 3_500_000)
    monkeypatch.setattr(session_module, "UNSOLICITED_BYTES_A_SECOND", 0.0)
    entry: JsonValue = {"command": sys.executable, "args": [str(SCRIPT), kind], "timeout": 120}
    async with aclosing(open_servers(tmp_path, mill=entry)) as servers:
        with pytest.raises(ToolServerFailed, match="it sent too many bytes in messages that answer no call"):
            await ToolCaller(servers).call_tool("echo")
    assert read == most


async def test_answers_to_calls_count_for_nothing_however_large_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "UNSOLICITED_BYTES_AT_ONCE", 100_000)
    monkeypatch.setattr(session_module, "UNSOLICITED_BYTES_A_SECOND", 0.0)
    async with aclosing(open_servers(tmp_path, shop=make_sample_server_entry())) as servers:
        bench = ToolCaller(servers)
        said = [await bench.call_tool("echo", words="x" * 30_000) for _ in range(5)]
    assert [one.text[:10] for one in said] == ["x" * 10] * 5


@pytest.mark.parametrize(("kind", "many"), [("ping", 50), ("elicitation", 20), ("progress", 500), ("errors", 50)])
async def test_a_talkative_program_is_borne(kind: str, many: int, tmp_path: Path) -> None:
    entry: JsonValue = {"command": sys.executable, "args": [str(SCRIPT), kind, str(many)], "timeout": 120}
    async with aclosing(open_servers(tmp_path, mill=entry)) as servers:
        assert (await ToolCaller(servers).call_tool("echo")).text == "hello"


def flooding(kind: str) -> Iterator[str]:
    """Events without end."""
    match kind:
        case "comments":
            yield from repeat(": x\n" * 1_000)
        case "other events":
            yield from repeat("event: x\ndata: y\n\n" * 1_000)
        case "long comments":
            yield from repeat(f": {LARGE}\n")
        case _:
            yield from (f"data: {line}\n\n" for line in iter_unsolicited_messages(kind, None))


async def test_a_list_of_tools_that_never_ends_is_left_when_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers_module, "LISTING_CHARACTERS", 10_000)
    entry: JsonValue = {"command": sys.executable, "args": [str(SCRIPT), "pages"], "timeout": 120}
    async with aclosing(open_servers(tmp_path, mill=entry)) as servers:
        offered = await servers.list_tools()
    assert [spec.tool for spec in offered.tools] == ["tool_0", "tool_1", "tool_2", "tool_3"]
    assert [one.reason for one in offered.hidden] == [
        "the tool server mill sends more than 10,000 characters of tool descriptions; the rest was not requested"
    ]


@asynccontextmanager
async def served(kind: str, place: str) -> AsyncGenerator[str]:
    """A server over HTTP that floods in its answer to a call, or in the stream beside it."""

    async def post(request: web.Request) -> web.StreamResponse:
        message = json.loads(await request.read())
        said = make_answer(message)
        if said is None:
            return web.Response(status=202)
        if message["method"] == "tools/call":
            return await flood(request) if place == "answer" else await stuck(request)
        return web.Response(text=said, content_type="application/json", headers={"Mcp-Session-Id": "one"})

    async def stuck(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await asyncio.Event().wait()
        return response

    async def flood(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "Text/Event-Stream;charset=utf-8"})
        await response.prepare(request)
        for events in ["retry: 0\n\n"] if kind == "again" else flooding(kind):
            await response.write(events.encode())
        return response

    async def get(request: web.Request) -> web.StreamResponse:
        return await flood(request) if place == "stream" else web.Response(status=405)

    app = web.Application()
    app.add_routes([web.post("/mcp", post), web.get("/mcp", get)])
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("ping", "answer"),
        ("logging", "answer"),
        ("other events", "answer"),
        ("answers", "stream"),
        ("large", "stream"),
        ("comments", "stream"),
        ("long comments", "stream"),
        ("long comments", "answer"),
    ],
)
async def test_a_server_that_floods_over_http_is_ended_with_a_clear_error(
    kind: str, place: str, tmp_path: Path
) -> None:
    async with (
        served(kind, place) as url,
        aclosing(open_servers(tmp_path, mill={"url": url, "timeout": 120})) as servers,
    ):
        before = resident()
        with pytest.raises((ToolServerFailed, StopIteration, RuntimeError)) as failed:
            await ToolCaller(servers).call_tool("echo")
        if isinstance(failed.value, ToolServerFailed):
            assert "the tool server mill was closed because it sent too many" in str(failed.value)
        else:
            hidden = (await servers.list_tools()).hidden
            assert any("it sent too many" in one.reason for one in hidden), hidden
        assert resident() - before < MOST_GROWTH


async def test_a_server_that_closes_its_stream_again_and_again_is_ended_with_a_clear_error(tmp_path: Path) -> None:
    async with (
        served("again", "stream") as url,
        aclosing(open_servers(tmp_path, mill={"url": url, "timeout": 120})) as servers,
    ):
        with pytest.raises(ToolServerFailed, match="it sent too many streams that ended early"):
            await ToolCaller(servers).call_tool("echo")
