"""The proxy before the Temporal UI: connections that ask for nothing are closed, and those that ask are answered."""

import asyncio

import pytest

from waystation.runtime.temporal import ui_proxy
from waystation.runtime.temporal.dev_server import HOST, find_free_port
from waystation.runtime.temporal.ui_proxy import IdleConnectionReaper, UiAddress, run_ui_proxy


async def closed_within(reader: asyncio.StreamReader, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            while await reader.read(1_000):
                pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nHost: elsewhere\r\n\r\n"])
async def test_an_idle_connection_is_closed_before_a_head_and_behind_an_answer(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ui_proxy, "IdleConnectionReaper", lambda: IdleConnectionReaper(seconds=0.3))
    port = find_free_port(0)
    async with run_ui_proxy(UiAddress(HOST, port), UiAddress(HOST, 9)):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(sent)
        assert await closed_within(reader, 5)
        writer.close()


async def test_of_too_many_idle_connections_those_that_waited_longest_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ui_proxy, "IdleConnectionReaper", lambda: IdleConnectionReaper(seconds=60, at_once=2))
    port = find_free_port(0)
    async with run_ui_proxy(UiAddress(HOST, port), UiAddress(HOST, 9)):
        opened = [await asyncio.open_connection(HOST, port) for _ in range(4)]
        closed = [await closed_within(reader, 1) for reader, _ in opened]
        opened[3][1].write(f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        answer = await opened[3][0].readline()
        for _, writer in opened:
            writer.close()
    assert closed == [True, True, False, False]
    assert answer.startswith(b"HTTP/1.1 502")
