import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from tests.support.mcp_tool_servers import ToolCaller, find_running_processes, make_sample_server_entry, open_servers
from tests.support.temporal_platform import wait_until
from waystation.kernel.errors import ToolServerFailed
from waystation.mcp.servers import BEYOND_CHARACTERS
from waystation.privacy.policy import RedactionResult
from waystation.security.untrusted import MAX_RESULT_CHARACTERS, truncate_tool_result

HERE = Path(__file__).parents[2]
WORKER = """
import asyncio, sys
from pathlib import Path
from tests.support.mcp_tool_servers import ToolCaller, make_sample_server_entry, open_servers

async def work() -> None:
    caller = ToolCaller(open_servers(Path(sys.argv[1]), shop=make_sample_server_entry()))
    await caller.call_tool("freeze", into=sys.argv[2])

asyncio.run(work())
"""


@pytest.fixture
async def tool_caller(tmp_path: Path) -> AsyncGenerator[ToolCaller]:
    async with aclosing(open_servers(tmp_path, shop=make_sample_server_entry(timeout=20, ask="writes"))) as servers:
        yield ToolCaller(servers)


async def until_gone(pids: Collection[int]) -> None:
    """Wait until none of the processes runs."""

    async def gone() -> bool:
        return not find_running_processes(pids)

    await wait_until(gone)


async def written(pids: Path) -> list[int]:
    """Process ids, when a server has written both into the file."""

    async def both() -> bool:
        return pids.exists() and len(pids.read_text(encoding="utf-8").split()) == 2

    await wait_until(both)
    return [int(pid) for pid in pids.read_text(encoding="utf-8").split()]


async def test_a_server_says_what_it_has_and_does_what_it_is_asked(tool_caller: ToolCaller) -> None:
    echo = await tool_caller.find_tool_spec("echo")
    assert (echo.name, echo.read_only, echo.requires_approval) == ("shop__echo", True, False)
    assert (await tool_caller.call_tool("echo", words="hello")).text == "hello"


async def test_tools_that_do_not_say_that_they_only_read_ask(tool_caller: ToolCaller) -> None:
    asking = {spec.tool for spec in (await tool_caller.servers.list_tools()).tools if spec.requires_approval}
    assert asking == {"keep", "put", "crash", "child", "daemon"}
    assert [(await tool_caller.find_tool_spec(tool)).idempotent for tool in ("put", "keep")] == [True, False]


async def test_a_failure_of_a_tool_is_a_result_that_says_so(tool_caller: ToolCaller) -> None:
    failed = await tool_caller.call_tool("fail", words="luck")
    assert failed.is_error
    assert "Error executing tool fail" in failed.text


async def test_what_is_no_text_is_named_and_left_out(tool_caller: ToolCaller) -> None:
    result = await tool_caller.call_tool("picture")
    assert result.text == "(An image of type image/png and about 1,005 bytes was left out: it is not text.)"


async def test_a_huge_result_is_an_error_and_the_server_stays(tool_caller: ToolCaller) -> None:
    pid = (await tool_caller.call_tool("seen")).text.split()[0]
    huge = await tool_caller.call_tool("huge", megabytes=50)
    assert huge.is_error
    assert huge.text == "The result was left out: it has more than 4,194,304 bytes. Ask for less."
    assert (await tool_caller.call_tool("seen")).text.split()[0] == pid


async def test_a_large_result_is_cut_and_says_how_long_it_was(tool_caller: ToolCaller) -> None:
    result = await tool_caller.call_tool("huge", megabytes=1)
    assert len(result.text) == MAX_RESULT_CHARACTERS + BEYOND_CHARACTERS
    shown = truncate_tool_result(result, RedactionResult(text=result.text))
    assert len(shown) < MAX_RESULT_CHARACTERS + 100
    assert shown.endswith("\n(Cut here: the result had 1,048,576 characters.)")


async def test_a_server_that_crashed_is_started_anew(tool_caller: ToolCaller) -> None:
    with pytest.raises(
        ToolServerFailed, match=r"^the connection to the tool server shop failed: the server ended, or sent "
    ):
        await tool_caller.call_tool("crash")
    assert (await tool_caller.call_tool("echo", words="again")).text == "again"


async def test_a_server_that_died_between_two_calls_is_started_anew_before_the_next(tool_caller: ToolCaller) -> None:
    pid = int((await tool_caller.call_tool("seen")).text.split()[0])
    keeper = psutil.Process(pid).ppid()
    os.kill(pid, signal.SIGKILL)
    await until_gone([pid, keeper])
    await asyncio.sleep(0.2)  # the pipe has ended: the loop has to see it
    assert (await tool_caller.call_tool("keep", words="once")).text == "kept once"


async def test_a_server_that_hangs_is_not_waited_for_and_another_is_started(tmp_path: Path) -> None:
    async with aclosing(open_servers(tmp_path, shop=make_sample_server_entry(timeout=3))) as servers:
        tool_caller = ToolCaller(servers)
        with pytest.raises(ToolServerFailed, match=r"^the tool server shop did not answer within 3 s$"):
            await tool_caller.call_tool("freeze", into=str(tmp_path / "pids"))
        assert (await tool_caller.call_tool("echo", words="on")).text == "on"
    await until_gone(await written(tmp_path / "pids"))


async def test_a_server_sees_nothing_of_the_workers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_KEY", "a")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "b")
    entry = make_sample_server_entry(env={"MINE": "yes"}, cwd=str(tmp_path))
    async with aclosing(open_servers(tmp_path, shop=entry)) as servers:
        _, folder, *variables = (await ToolCaller(servers).call_tool("seen")).text.split(" ")
    names = {variable.partition("=")[0] for variable in variables}
    assert "MINE=yes" in variables
    assert names <= {"MINE", "PATH", "HOME", "LANG", "LC_CTYPE"}  # Python itself sets the last
    assert folder == str(tmp_path)


async def test_a_secret_that_a_server_repeats_is_taken_out(tmp_path: Path) -> None:
    entry = make_sample_server_entry(env={"MY_TOKEN": "${T}"})
    async with aclosing(open_servers(tmp_path, {"T": "open-sesame-17"}, shop=entry)) as servers:
        tool_caller = ToolCaller(servers)
        assert "MY_TOKEN=[secret]" in (await tool_caller.call_tool("seen")).text
        assert (await tool_caller.call_tool("echo", words="it is open-sesame-17")).text == "it is [secret]"


async def test_closing_ends_the_server_and_what_it_started(tool_caller: ToolCaller, tmp_path: Path) -> None:
    await tool_caller.call_tool("child", into=str(tmp_path / "pids"))
    await tool_caller.servers.aclose()
    await until_gone(await written(tmp_path / "pids"))


async def test_a_server_ends_with_its_worker_however_that_ends(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    worker = await asyncio.create_subprocess_exec(sys.executable, "-c", WORKER, str(tmp_path), str(pids), cwd=HERE)
    found = await written(pids)
    worker.kill()
    await worker.wait()
    await until_gone(found)


async def test_a_server_that_is_not_there_is_hidden_with_the_reason_and_the_others_are_not(tmp_path: Path) -> None:
    servers = open_servers(
        tmp_path,
        shop=make_sample_server_entry(),
        gone={"command": "no-such-program"},
        mute={"command": sys.executable, "args": ["-c", "print('hello')"]},
        nowhere={"command": sys.executable, "cwd": "/no/such/folder"},
        slow={"command": sys.executable, "args": ["-c", "import time; time.sleep(60)"], "start_timeout": 0.5},
    )
    async with aclosing(servers):
        found = await servers.list_tools()
    assert {spec.server for spec in found.tools} == {"shop"}
    assert {(one.server, one.tool): one.reason for one in found.hidden} == {
        ("gone", ""): "the program of the tool server gone does not exist or is not executable",
        ("mute", ""): "the tool server mute ended at its start or does not implement the protocol",
        ("nowhere", ""): "the folder (cwd) of the tool server nowhere does not exist",
        ("slow", ""): "the tool server slow did not answer within its start_timeout of 0.5 s",
    }


async def test_calls_side_by_side_share_one_server(tool_caller: ToolCaller) -> None:
    await tool_caller.servers.list_tools()
    results = await asyncio.gather(*(tool_caller.call_tool("seen") for _ in range(5)))
    assert len({result.text.split()[0] for result in results}) == 1


async def test_the_reference_servers_work_by_the_config_file(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("mcp-server-time")
    async with aclosing(
        open_servers(tmp_path, time={"command": str(program), "args": ["--local-timezone", "UTC"]})
    ) as one:
        tool_caller = ToolCaller(one)
        assert [spec.name for spec in (await one.list_tools()).tools] == [
            "time__get_current_time",
            "time__convert_time",
        ]
        assert (await tool_caller.find_tool_spec("get_current_time")).requires_approval
        result = await tool_caller.call_tool(
            "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        refused = await tool_caller.call_tool("get_current_time", timezone="Moon/Sea")
    assert "T21:00:00+09:00" in result.text
    assert refused.is_error
