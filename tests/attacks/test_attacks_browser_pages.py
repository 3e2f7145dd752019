"""What a page of another site can reach of the dev server: by its own name (cross-origin), or by a name of its own that
leads to this machine (DNS rebinding).
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException

import aiohttp
import psutil
import pytest
import pytest_asyncio
from temporalio.client import WorkflowHandle

from waystation.runtime.temporal.dev_server import BROWSERS_REFUSE, DevServer, run_dev_server

FETCH_BAD_PORTS = frozenset(
    {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080}
)
"""Of the Fetch standard, those from 1024 on."""
PATHS = ("/", "/api/v1/namespaces", "/api/v1/namespaces/default/workflows", "/api/v1/settings", "/metrics", "/nexus/x")
FOREIGN = {"Host": "pages.example", "Origin": "http://pages.example"}


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DevServer]:
    folder = tmp_path_factory.mktemp("temporal")
    async with run_dev_server(folder / "t.db", folder / "t.log", 0, 0) as started:
        yield started


def listening(pid: int) -> list[tuple[str, int]]:
    found = psutil.Process(pid).net_connections(kind="tcp")
    return sorted({(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN})


def speaks_http(place: tuple[str, int]) -> bool:
    connection = HTTPConnection(*place, timeout=5)
    try:
        connection.request("GET", "/", headers={"Host": f"{place[0]}:{place[1]}"})
        connection.getresponse()
    except (HTTPException, OSError):
        return False
    finally:
        connection.close()
    return True


async def test_no_port_of_the_dev_server_that_speaks_http_can_be_reached_by_a_browser_but_the_proxy_of_its_ui(
    server: DevServer,
) -> None:
    places = listening(server.pid)
    assert len(places) >= 5
    for place in places:
        assert place[0].startswith("127."), place
        assert place[1] in FETCH_BAD_PORTS or not await asyncio.to_thread(speaks_http, place), place
    assert set(BROWSERS_REFUSE) <= FETCH_BAD_PORTS


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (FOREIGN, 421),
        ({"Host": "pages.example:{port}"}, 421),
        ({"Host": "127.0.0.1"}, 421),
        ({"Host": "127.0.0.1.pages.example:{port}"}, 421),
        ({"Origin": "http://pages.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://127.0.0.1:{port}"}, 403),
        ({"Origin": "http://localhost:{port}"}, 403),
    ],
)
async def test_the_ui_answers_only_its_own_pages(server: DevServer, headers: dict[str, str], status: int) -> None:
    assert server.target.ui_url is not None
    port = server.target.ui_url.rpartition(":")[2]
    named = {name: value.format(port=port) for name, value in headers.items()}
    async with aiohttp.ClientSession(server.target.ui_url) as session:
        for path in PATHS:
            for method in ("GET", "POST", "OPTIONS"):
                async with session.request(method, path, headers=named, data=b"{}") as answer:
                    assert answer.status == status, (path, method)
                    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_request_whose_target_names_another_host_is_refused(server: DevServer) -> None:
    assert server.target.ui_url is not None
    place = server.target.ui_url.removeprefix("http://")
    host, port = place.split(":")
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(f"GET http://pages.example/api/v1/settings HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
        raw.settimeout(5)
        assert (await asyncio.to_thread(raw.recv, 1000)).startswith(b"HTTP/1.1 421 ")


async def test_the_http_api_allows_no_host(server: DevServer) -> None:
    refused = 0
    for place in listening(server.pid):
        for host in ("pages.example", f"{place[0]}:{place[1]}", "localhost", "nothing.invalid"):
            try:
                async with (
                    aiohttp.ClientSession() as session,
                    session.post(
                        f"http://{place[0]}:{place[1]}/api/v1/namespaces/default/workflows/x/terminate",
                        headers={"Host": host},
                        data=b"{}",
                    ) as answer,
                ):
                    assert answer.status in {400, 403, 404, 405}, (place, host)
                    refused += answer.status == 403
            except aiohttp.ClientError:
                continue  # it speaks gRPC alone
    assert refused == 4


async def test_a_person_has_the_ui_and_may_signal_from_it(server: DevServer) -> None:
    assert server.target.ui_url is not None
    handle: WorkflowHandle[object, object] = await server.client.start_workflow("Nobody", id="w", task_queue="q")
    async with aiohttp.ClientSession(server.target.ui_url, cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get("/namespaces/default/workflows") as page:
            assert page.status == 200
            assert "<html" in await page.text()
        # Refused once, since it was quicker to start, the UI's server dials the frontend again after a second.
        while True:
            async with session.get("/api/v1/namespaces/default/workflows/w") as found:
                if found.status != HTTPStatus.SERVICE_UNAVAILABLE:
                    assert (await found.json())["workflowExecutionInfo"]["type"]["name"] == "Nobody"
                    break
            await asyncio.sleep(0.1)
        token = next(cookie.value for cookie in session.cookie_jar if cookie.key == "_csrf")
        address = "/api/v1/namespaces/default/workflows/w/terminate"
        headers = {"X-CSRF-TOKEN": token, "Origin": server.target.ui_url}
        async with session.post(address, headers=headers, json={"reason": "by a person"}) as ended:
            assert ended.status == 200, await ended.text()
    assert (await handle.describe()).status is not None
