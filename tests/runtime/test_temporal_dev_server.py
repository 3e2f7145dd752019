import asyncio
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest

from waystation.cli.platform import build_run_file, print_run_info
from waystation.kernel.errors import Unreachable
from waystation.runtime.temporal import dev_server
from waystation.runtime.temporal.connect import (
    TemporalTarget,
    connect,
    ensure_search_attributes,
    list_unusable_search_attributes,
)
from waystation.runtime.temporal.dev_server import DevServer, run_dev_server
from waystation.runtime.temporal.installation import get_client_installation_prefix

STARTS_A_SERVER_AND_WAITS = """
import asyncio, sys
from pathlib import Path
from waystation.runtime.temporal.dev_server import run_dev_server

async def main():
    async with run_dev_server(Path(sys.argv[1], "t.db"), Path(sys.argv[1], "t.log"), 0, 0) as server:
        print(server.pid, flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_a_server_serves_while_it_is_wanted_and_leaves_no_process(tmp_path: Path) -> None:
    async with run_dev_server(tmp_path / "temporal.db", tmp_path / "logs" / "temporal.log", 0, 0) as server:
        assert await server.client.count_workflows()
        process = psutil.Process(server.pid)
        assert Path(process.exe()).name == "temporal"
        # Both would tell their vendor that this machine runs a server.
        assert {"frontend.enableServerVersionCheck=false", "--ui-disable-news-fetch"} <= set(process.cmdline())
    assert not process.is_running()
    with pytest.raises(Unreachable, match=f"no Temporal server answers at {server.target.address}: start one with"):
        await connect(server.target)


async def test_the_client_that_comes_with_a_server_is_of_the_installation(tmp_path: Path) -> None:
    async with run_dev_server(tmp_path / "t.db", tmp_path / "t.log", 0, 0, prefix="acme.") as server:
        assert get_client_installation_prefix(server.client) == server.target.prefix == "acme."


def test_a_server_dies_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_A_SERVER_AND_WAITS, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        server = psutil.Process(int(parent.stdout.readline()))
        assert server.is_running()
        parent.kill()
    _, alive = psutil.wait_procs([server], timeout=20)
    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


async def test_servers_that_start_at_once_with_the_same_usual_port_are_servers_of_their_own(tmp_path: Path) -> None:
    usual = dev_server.find_free_port(0), dev_server.find_free_port(0)

    async with AsyncExitStack() as life:

        async def started(number: int) -> DevServer:
            folder = tmp_path / str(number)
            return await life.enter_async_context(run_dev_server(folder / "t.db", folder / "t.log", *usual))

        servers = await asyncio.gather(*(started(number) for number in range(3)))
        assert len({server.target.address for server in servers}) == 3
        assert all(psutil.pid_exists(server.pid) for server in servers)
        assert servers[0].target.address.endswith(f":{usual[0]}")


@pytest.mark.parametrize("place", [0, 1], ids=["of the server", "of its UI"])
async def test_a_port_that_was_taken_since_it_was_found_is_no_end(
    place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with dev_server.socket.socket() as taken:
        taken.bind((dev_server.HOST, 0))
        taken.listen()
        found = [dev_server.find_free_port(0) for _ in range(4)]
        found[place] = taken.getsockname()[1]
        offered = iter(found)

        def free_port(usual: int) -> int:
            return next(offered)

        monkeypatch.setattr(dev_server, "find_free_port", free_port)
        async with run_dev_server(tmp_path / "temporal.db", tmp_path / "temporal.log", 0, 0) as server:
            assert await server.client.count_workflows()
    if place == 0:
        assert b"address already in use" in (tmp_path / "temporal.log").read_bytes()


async def test_a_server_whose_ports_are_always_taken_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with dev_server.socket.socket() as taken:
        taken.bind((dev_server.HOST, 0))
        taken.listen()

        def free_port(usual: int) -> int:
            return taken.getsockname()[1]

        monkeypatch.setattr(dev_server, "find_free_port", free_port)
        with pytest.raises(
            Unreachable,
            match=f"attempts, another program took the free port .*the log is {tmp_path}/temporal.log",
        ):
            async with run_dev_server(tmp_path / "temporal.db", tmp_path / "temporal.log", 0, 0):
                pass


async def test_a_server_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    database = tmp_path / "temporal.db"
    database.write_text("this is no database")
    with pytest.raises(Unreachable, match=rf"the dev server ended with exit code \d+: see {tmp_path}/temporal.log"):
        async with run_dev_server(database, tmp_path / "temporal.log", 0, 0):
            pass


def test_a_port_that_is_taken_is_left_alone() -> None:
    with dev_server.socket.socket() as taken:
        taken.bind((dev_server.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert dev_server.find_free_port(port) != port
    assert dev_server.find_free_port(port) == port


async def test_search_attributes_are_registered_once_and_a_name_with_another_type_is_noticed(tmp_path: Path) -> None:
    async with run_dev_server(tmp_path / "temporal.db", tmp_path / "temporal.log", 0, 0) as server:
        request = AddSearchAttributesRequest(
            namespace="default", search_attributes={"WaystationPhase": IndexedValueType.INDEXED_VALUE_TYPE_INT}
        )
        await server.client.operator_service.add_search_attributes(request)
        assert not await ensure_search_attributes(server.client)
        assert await list_unusable_search_attributes(server.client) == ("WaystationPhase",)


async def test_search_attributes_that_are_there_stay(temporal_server: TemporalTarget) -> None:
    client = await connect(temporal_server)
    assert await list_unusable_search_attributes(client) == ()
    assert await ensure_search_attributes(client)


async def test_a_server_without_ports_out_of_reach_of_pages_says_which_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with dev_server.socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(dev_server, "BROWSERS_REFUSE", (port,))
        async with run_dev_server(tmp_path / "temporal.db", tmp_path / "temporal.log", 0, 0) as server:
            without_ui, open_to_pages = server.remarks
            print_run_info(build_run_file(server))
    assert without_ui.startswith("The Temporal UI does not run: it needs a port to which browsers refuse to connect, ")
    assert "All such ports are taken (" in without_ui
    assert str(port) in without_ui
    assert without_ui.endswith("then run `waystation down` and `waystation up`")
    assert "can reach the Temporal server's HTTP API and metrics on 127.0.0.1" in open_to_pages
    said = " ".join(capsys.readouterr().err.split())
    assert without_ui in said
    assert open_to_pages in said
