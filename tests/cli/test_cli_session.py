"""`waystation session set` against a real server."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.finished_tasks import store_finished_task
from tests.support.scopes import SYSTEM_SCOPE
from waystation.budgets.budget import BudgetAccount
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.connect import TemporalTarget
from waystation.tasks.session import SessionKey, SessionState, StoredSession


@pytest.mark.parametrize(
    ("budget", "tokens", "usd"), [("2M+$50", 2_000_000, 50.0), ("$1,250.50", None, 1250.5), ("unlimited", None, None)]
)
def test_a_limit_that_was_set_is_printed_for_programs(
    temporal_server: TemporalTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    budget: str,
    tokens: int | None,
    usd: float | None,
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_ADDRESS", str(temporal_server.address))
    assert run(["session", "set", "harbours", "--budget", budget, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"session": "harbours", "limit": {"tokens": tokens, "usd": usd}}


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\u2028b"])
def test_a_name_that_no_session_may_have_gets_no_limit(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:9")
    assert run(["session", "set", name, "--budget", "10k"]) == 2
    assert "the name of a session must be one line without control characters" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[2Jb", "a\u202eb"])
def test_a_key_has_a_name_that_can_be_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    assert run(["keys", "make", name]) == 2
    assert "NAME must be one line of 1 to 100 printable characters" in " ".join(capsys.readouterr().err.split())


async def kept(home: Path) -> None:
    """A session with one task and a limit, of which some is held."""
    task = await store_finished_task(Settings(home=home))
    store = await SqlStore.open(Settings(home=home).database_url, utc_now)
    ref = (await store.get_task(task, SYSTEM_SCOPE)).ref
    key = SessionKey(tenant=ref.tenant, session=ref.session)
    epoch = (await store.take_over_session(key)).epoch
    account = BudgetAccount(limit=Limit(tokens=200_000)).reserve("task-2", Amount(tokens=60_000))
    await store.save_session(key, StoredSession(epoch=epoch, version=1, state=SessionState(account=account)))
    await store.aclose()


def test_a_session_is_listed_with_what_is_spent_and_held_and_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    asyncio.run(kept(tmp_path))
    assert run(["session", "list"]) == 0
    line = " ".join(capsys.readouterr().out.split())
    assert "1 task $0.00 0 spent 60k reserved limit 200k default" in line
