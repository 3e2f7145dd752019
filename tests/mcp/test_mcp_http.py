import asyncio
import gc
import gzip
import logging
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web
from pydantic import JsonValue

from tests.support.free_ports import find_free_port
from tests.support.mcp_tool_servers import SCRIPT, ToolCaller, open_servers
from tests.support.web_site import SiteHandler, run_site
from waystation.kernel.errors import ToolServerFailed
from waystation.mcp import session as session_module


async def started(port: int) -> Process:
    """A tool server on loopback, when it takes connections."""
    server = await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), "http", str(port), stderr=DEVNULL)
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                await writer.wait_closed()
                return server


async def stopped(server: Process) -> None:
    server.kill()
    await server.wait()


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    number = find_free_port()
    server = await started(number)
    yield number
    await stopped(server)


async def test_a_server_is_spoken_to_over_streamable_http(port: int, tmp_path: Path) -> None:
    entry: JsonValue = {"type": "http", "url": f"http://127.0.0.1:{port}/mcp", "timeout": 20}
    async with aclosing(open_servers(tmp_path, web=entry)) as servers:
        bench = ToolCaller(servers)
        assert (await bench.find_tool_spec("echo")).name == "web__echo"
        assert (await bench.call_tool("echo", words="hello")).text == "hello"
        failed = await bench.call_tool("fail", words="luck")
        assert failed.is_error


async def test_a_huge_result_over_http_is_an_error_and_the_next_call_works(port: int, tmp_path: Path) -> None:
    entry: JsonValue = {"url": f"http://127.0.0.1:{port}/mcp", "timeout": 30}
    async with aclosing(open_servers(tmp_path, web=entry)) as servers:
        bench = ToolCaller(servers)
        huge = await bench.call_tool("huge", megabytes=50)
        assert huge.is_error
        assert huge.text == "The result was left out: it has more than 4,194,304 bytes. Ask for less."
        assert (await bench.call_tool("echo", words="on")).text == "on"


async def test_a_server_that_was_started_anew_is_connected_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    number = find_free_port()
    server = await started(number)
    async with aclosing(
        open_servers(tmp_path, web={"url": f"http://127.0.0.1:{number}/mcp", "timeout": 20})
    ) as servers:
        bench = ToolCaller(servers)
        await bench.call_tool("echo", words="before")
        await stopped(server)
        with pytest.raises(ToolServerFailed, match=r"^the (connection to the )?tool server web "):
            await bench.call_tool("echo", words="meanwhile")
        server = await started(number)
        try:
            assert (await bench.call_tool("echo", words="after")).text == "after"
        finally:
            await stopped(server)
    del bench, servers
    gc.collect()
    assert "never retrieved" not in caplog.text


async def test_a_server_that_nobody_runs_is_hidden_with_the_reason(tmp_path: Path) -> None:
    async with aclosing(open_servers(tmp_path, web={"url": f"http://127.0.0.1:{find_free_port()}/mcp"})) as servers:
        (hidden,) = (await servers.list_tools()).hidden
    assert hidden.reason == "the tool server web cannot be reached: nothing listens there"


@asynccontextmanager
async def answering(answer: SiteHandler) -> AsyncGenerator[JsonValue]:
    """A server on loopback that answers so; its entry in a config file."""

    async def posted(request: web.Request) -> web.StreamResponse:
        return await answer(request) if request.method in {"POST", "DELETE"} else web.Response(status=405)

    async with run_site({"/mcp": posted}) as site:
        yield {"url": site.url("/mcp"), "timeout": 20}


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_an_answer_without_end_is_not_taken_in(tmp_path: Path, kind: str) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        for _ in range(1_000):
            await response.write(b" " * 1024 * 1024)
            sent += 1
        return response

    async with answering(answer) as entry, aclosing(open_servers(tmp_path, web=entry)) as servers:
        (hidden,) = (await servers.list_tools()).hidden
    assert hidden.tool == ""
    assert sent < 100


async def test_a_packed_answer_is_not_unpacked(tmp_path: Path) -> None:
    async def answer(_: web.Request) -> web.Response:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        return web.Response(body=gzip.compress(b" " * 50_000_000), headers=headers)

    async with answering(answer) as entry, aclosing(open_servers(tmp_path, web=entry)) as servers:
        (hidden,) = (await servers.list_tools()).hidden
    assert hidden.reason == "the tool server web cannot be reached: the answer cannot be decompressed"


async def refused(_: web.Request) -> web.StreamResponse:
    return web.Response(status=405)


class OldServer:
    """A server of the protocol before 2026: it knows its clients by a session, and may forget them."""

    def __init__(self, ended: SiteHandler | None = None) -> None:
        self.sessions: list[str] = []
        self.ended = ended or refused
        """How it answers when a session is ended."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE":
            return await self.ended(request)
        asked = await request.json()
        headers: dict[str, str] = {}
        said: dict[str, JsonValue]
        match asked["method"]:
            case "initialize":
                headers["mcp-session-id"] = f"session-{len(self.sessions)}"
                self.sessions.append(headers["mcp-session-id"])
                version = asked["params"]["protocolVersion"]
                server: JsonValue = {"name": "old", "version": "1"}
                said = {"result": {"protocolVersion": version, "capabilities": {}, "serverInfo": server}}
            case _ if "id" not in asked:
                return web.Response(status=202)
            case "tools/list" | "tools/call" if request.headers.get("mcp-session-id") not in self.sessions:
                return web.Response(status=404)
            case "tools/list":
                said = {"result": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]}}
            case "tools/call":
                said = {"result": {"content": [{"type": "text", "text": "hello"}]}}
            case _:
                said = {"error": {"code": -32601, "message": "no such method"}}
        return web.json_response({"jsonrpc": "2.0", "id": asked["id"]} | said, headers=headers)


async def test_a_server_that_has_forgotten_the_session_is_greeted_anew(tmp_path: Path) -> None:
    old = OldServer()
    async with answering(old.answer) as entry, aclosing(open_servers(tmp_path, web=entry)) as servers:
        bench = ToolCaller(servers)
        assert (await bench.call_tool("greet")).text == "hello"
        old.sessions[:] = ["forgotten"]
        with pytest.raises(ToolServerFailed, match=r"^the connection to the tool server web failed: "):
            await bench.call_tool("greet")
        assert (await bench.call_tool("greet")).text == "hello"


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
async def test_what_answers_the_end_of_a_session_is_not_read(kind: str, tmp_path: Path) -> None:
    sent = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        with suppress(ConnectionError):
            for _ in range(100):
                await response.write(b"x" * 1024 * 1024)
                sent += 1
        return response

    async with answering(OldServer(flood).answer) as entry, aclosing(open_servers(tmp_path, web=entry)) as servers:
        assert (await ToolCaller(servers).call_tool("greet")).text == "hello"
        await servers.aclose()
        assert sent < 50


@pytest.mark.parametrize("bound", ["SESSION_END_TIMEOUT_S", "CLOSE_TIMEOUT_S"])
async def test_a_server_that_does_not_answer_the_end_of_its_session_is_not_waited_for(
    bound: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "SESSION_END_TIMEOUT_S", 100_000.0)
    monkeypatch.setattr(session_module, "CLOSE_TIMEOUT_S", 100_000.0)
    monkeypatch.setattr(session_module, bound, 0.1)
    asked, let_go = asyncio.Event(), asyncio.Event()

    async def hang(_: web.Request) -> web.StreamResponse:
        asked.set()
        await let_go.wait()
        return web.Response()

    async with answering(OldServer(hang).answer) as entry, aclosing(open_servers(tmp_path, web=entry)) as servers:
        assert (await ToolCaller(servers).call_tool("greet")).text == "hello"
        async with asyncio.timeout(60):
            await servers.aclose()
        assert asked.is_set()
        let_go.set()


async def test_addresses_and_headers_are_in_no_log_and_no_error(
    port: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    url = f"http://127.0.0.1:{port}/mcp?api_key=${{API_KEY}}"
    entry: JsonValue = {"url": url, "headers": {"Authorization": "Bearer ${API_KEY}"}}
    async with aclosing(open_servers(tmp_path, {"API_KEY": "open-sesame-17"}, web=entry)) as servers:
        assert (await ToolCaller(servers).call_tool("echo", words="hi")).text == "hi"
    assert "open-sesame-17" not in caplog.text
