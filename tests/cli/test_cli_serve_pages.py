"""Pages that the platform's own process serves: loaded when somebody comes, ended with the platform."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from waystation.cli.serve import serve_pages
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput


async def answer_of(address: str) -> int:
    async with httpx2.AsyncClient(timeout=60) as client:
        return (await client.get(address)).status_code


async def test_pages_answer_who_has_the_address_until_the_platform_ends(tmp_path: Path) -> None:
    faults: list[str] = []
    async with serve_pages(Settings(home=tmp_path), faults.append) as address:
        assert await answer_of(address) == 303, "who is signed in is led to the tasks"
        assert await answer_of(address.partition("?")[0]) == 401
    with pytest.raises(httpx2.ConnectError):
        await answer_of(address)
    assert faults == []


async def test_pages_that_nobody_asks_for_end_at_once(tmp_path: Path) -> None:
    async with serve_pages(Settings(home=tmp_path), pytest.fail) as address:
        assert address.startswith("http://127.0.0.1:")
    async with serve_pages(Settings(home=tmp_path, pages=False), pytest.fail) as address:
        assert address == ""


async def test_why_pages_cannot_be_served_is_told_when_somebody_comes(tmp_path: Path) -> None:
    faults: list[str] = []
    (tmp_path / "waystation.db").write_bytes(b"no database, but a text of another program" * 100)
    async with serve_pages(Settings(home=tmp_path), faults.append) as address:
        with pytest.raises(httpx2.TransportError):
            await answer_of(address)
        async with asyncio.timeout(60):
            while not faults:
                await asyncio.sleep(0.01)
    assert [("waystation.db" in fault or "database" in fault) for fault in faults] == [True]


async def test_a_part_of_what_openid_needs_is_missed_before_anybody_comes(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, oidc_issuer="https://login.example.org")
    with pytest.raises(BadInput, match="OpenID needs WAYSTATION_OIDC_ISSUER"):
        async with serve_pages(settings, pytest.fail):
            pass
