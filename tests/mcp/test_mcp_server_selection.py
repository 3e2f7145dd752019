"""Which servers of the config file a task has: the usual ones, those that it names, or none."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import JsonValue

from tests.support.mcp_tool_servers import make_sample_server_entry, open_servers
from waystation.kernel.errors import BadInput
from waystation.mcp.config import list_server_names
from waystation.security.untrusted import HiddenTool


def marking(mark: Path) -> JsonValue:
    """A server that leaves a mark when it is started, and is none."""
    return {"command": sys.executable, "args": ["-c", f"open({str(mark)!r}, 'w')"], "by_name": True}


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (None, {"shop"}),
        (["default"], {"shop"}),
        (["wiki"], {"wiki"}),
        (["default", "wiki"], {"shop", "wiki"}),
        (["shop"], {"shop"}),
        ([], set[str]()),
    ],
)
async def test_a_task_has_the_usual_servers_or_those_that_it_names(
    tmp_path: Path, named: Sequence[str] | None, expected: set[str]
) -> None:
    shop, wiki = make_sample_server_entry(allow=["echo"]), make_sample_server_entry(allow=["echo"], by_name=True)
    async with aclosing(open_servers(tmp_path, shop=shop, wiki=wiki)) as servers:
        assert {spec.server for spec in (await servers.list_tools(servers=named)).tools} == expected


async def test_a_server_that_no_task_names_is_not_started(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    async with aclosing(
        open_servers(tmp_path, shop=make_sample_server_entry(allow=["echo"]), wiki=marking(mark))
    ) as servers:
        usual = await servers.list_tools()
        assert {one.server for one in (*usual.tools, *usual.hidden)} == {"shop"}
        assert not mark.exists()
        named = await servers.list_tools(servers=["wiki"])
        assert mark.exists()
        assert (named.tools, [(one.server, one.tool) for one in named.hidden]) == ((), [("wiki", "")])


async def test_a_name_that_the_file_does_not_have_is_told(tmp_path: Path) -> None:
    async with aclosing(open_servers(tmp_path, shop=make_sample_server_entry(allow=["echo"]))) as servers:
        found = await servers.list_tools(servers=["no-such", "shop"])
    reason = "the config file of the worker has no tool server with this name"
    assert found.hidden[-1] == HiddenTool(server="no-such", tool="", reason=reason)
    assert {spec.server for spec in found.tools} == {"shop"}


async def test_a_server_that_says_nothing_keeps_no_task_waiting_that_does_not_use_it(tmp_path: Path) -> None:
    silent: JsonValue = {"command": sys.executable, "args": ["-c", "input()\ninput()"], "by_name": True}
    async with aclosing(
        open_servers(tmp_path, shop=make_sample_server_entry(allow=["echo"]), silent=silent)
    ) as servers:
        waits = asyncio.create_task(servers.list_tools(servers=["silent"]))
        await asyncio.sleep(0)
        assert {spec.server for spec in (await servers.list_tools()).tools} == {"shop"}
        assert not waits.done()
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits


def test_names_are_known_where_the_secrets_are_not(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(
        '{"mcpServers": {"wiki": {"url": "https://wiki.example.org/mcp", "headers": {"Authorization": "${WIKI}"}},'
        ' "old": {"command": "x", "disabled": true}}}',
        encoding="utf-8",
    )
    assert list_server_names(path) == ("wiki",)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(BadInput, match=r"mcp\.json is not JSON \(line 1"):
        list_server_names(path)
