"""`waystation secrets`: what tool servers are given is typed unseen, kept sealed, and shown nowhere."""

import asyncio
import io
import json
import sys
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.support.mcp_tool_servers import make_sample_server_entry
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.privacy.key_file import compute_key_check
from waystation.runtime.store_setup import load_or_create_installation_key, load_tool_secrets, open_store

SECRET, NEWER = "5up3r-s3cr3t-value", "n3w3r-s3cr3t-value"
HEX = "0123456789abcdef" * 4
Typed = Callable[[str, str], int]


@pytest.fixture
def typed(without_server: Settings, monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Keeps a secret that comes on standard input."""
    del without_server

    def keep(name: str, text: str) -> int:
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return run(["secrets", "set", name])

    return keep


async def kept(settings: Settings, *names: str) -> dict[str, str]:
    async with aclosing(await open_store(settings)) as store:
        return dict(await load_tool_secrets(settings, store, names))


async def claimed(settings: Settings) -> None:
    """As by the first worker."""
    async with aclosing(await open_store(settings)) as store:
        assert await store.claim_key(compute_key_check(load_or_create_installation_key(settings)))


def test_a_secret_is_kept_replaced_listed_without_what_it_is_and_forgotten(
    typed: Typed, without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert [typed("WIKI", f"{SECRET}\n"), typed("MAP", SECRET), typed("WIKI", f"{NEWER}\r\n")] == [0, 0, 0]
    assert asyncio.run(kept(without_server, "WIKI", "MAP", "OTHER")) == {"WIKI": NEWER, "MAP": SECRET}
    assert run(["secrets", "list"]) == 0
    assert run(["secrets", "list", "--json"]) == 0
    assert run(["secrets", "forget", "WIKI"]) == 0
    assert run(["secrets", "forget", "WIKI"]) == 2
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[:2]] == ["MAP", "WIKI"]
    assert [set(one) for one in json.loads("\n".join(said.out.splitlines()[2:]))] == [{"name", "kept_at"}] * 2
    assert "there is no secret 'WIKI': `waystation secrets list` shows all names" in said.err
    assert asyncio.run(kept(without_server, "WIKI", "MAP")) == {"MAP": SECRET}
    files = b"".join(path.read_bytes() for path in without_server.home.rglob("*") if path.is_file())
    for text in (SECRET, NEWER):
        assert text not in said.out + said.err
        assert text.encode() not in files


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("WIKI", "", "a secret must have 1 to 10,000 characters"),
        ("WIKI", " \n", "a secret must have 1 to 10,000 characters"),
        ("WIKI", "a" * 10_001, "a secret must have 1 to 10,000 characters"),
        ("WIKI", "a\0b", "a secret must have 1 to 10,000 characters"),
        ("WIKI=abc", SECRET, "is not a valid name: use up to 100 letters"),
        ("9", SECRET, "is not a valid name: use up to 100 letters"),
    ],
)
def test_what_is_no_secret_or_no_name_of_one_is_refused(
    typed: Typed, name: str, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed(name, text) == 2
    assert said in capsys.readouterr().err


def test_with_another_key_or_none_a_secret_is_not_to_be_had(
    typed: Typed, without_server: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed("WIKI", SECRET) == 0
    monkeypatch.setenv("WAYSTATION_KEY", HEX)
    with pytest.raises(BadInput, match="is not the key that this data was encrypted with"):
        asyncio.run(kept(Settings(home=without_server.home), "WIKI"))
    monkeypatch.delenv("WAYSTATION_KEY")
    asyncio.run(claimed(without_server))
    without_server.key_file.unlink()
    with pytest.raises(BadInput, match="a secret of a tool server is encrypted, and the key is missing"):
        asyncio.run(kept(without_server, "WIKI"))
    assert typed("WIKI", NEWER) == 2


def test_a_file_that_names_a_secret_is_read_with_what_the_vault_has(
    typed: Typed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mcp.json"
    shop = make_sample_server_entry(allow=["echo"], env={"SHOP": "${secret:SHOP}"})
    path.write_text(json.dumps({"mcpServers": {"shop": shop}}), encoding="utf-8")
    assert run(["tools", "--servers", str(path)]) == 2
    assert "the vault has no secret SHOP: add it with `waystation secrets set SHOP`" in capsys.readouterr().err
    assert typed("SHOP", SECRET) == 0
    assert run(["tools", "--servers", str(path)]) == 0
