"""`waystation report --restore`: who may read what placeholders stand for, and what is said where nobody can."""

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import aclosing
from html import escape
from pathlib import Path

import pytest

from tests.support.finished_tasks import store_finished_task
from tests.support.scopes import SYSTEM_SCOPE
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.privacy.policy import VaultEntry
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_cipher
from waystation.tasks.task import tenant_hash

ADA, PLACEHOLDER, CREDENTIAL = "Ada Lovelace", "<PERSON_7f3a2c91d04e>", "<SECRET_0123456789ab>"
REPORT = f"# Report\nBy {PLACEHOLDER}, with {CREDENTIAL}."
RESTORED = f"# Report\nBy {ADA}, with {CREDENTIAL}."
HEX = "0123456789abcdef" * 4
Run = Callable[..., tuple[int, str, str]]


async def keep_report(settings: Settings) -> str:
    task_id = await store_finished_task(settings)
    async with aclosing(await SqlStore.open(settings.database_url, utc_now)) as store:
        progress = (await store.get_task(task_id, SYSTEM_SCOPE)).progress
        assert progress is not None
        blob = await store.put_text(REPORT, (await store.get_task(task_id, SYSTEM_SCOPE)).ref.scope)
        await store.save_task_progress(task_id, progress.replace(report=blob))
        kept = VaultEntry(type="PERSON", placeholder=PLACEHOLDER, fingerprint="7f3a2c91d04e" + "0" * 52, text=ADA)
        await store.build_vault(build_cipher(settings, "vault")).store_originals(tenant_hash(settings.tenant), [kept])
    return task_id


@pytest.fixture
def task_id(without_server: Settings) -> str:
    """Id of a task that has ended with a report, whose key lies in the home folder."""
    return asyncio.run(keep_report(without_server))


@pytest.fixture
def ran(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: str) -> tuple[int, str, str]:
        code = run(arguments)
        said = capsys.readouterr()
        return code, said.out.rstrip("\n"), said.err.rstrip("\n")

    return run_command


def test_the_owner_reads_what_was_replaced_and_is_told_what_stayed(task_id: str, ran: Run) -> None:
    assert ran("report", task_id) == (0, REPORT, "")
    assert ran("report", task_id, "--restore") == (
        0,
        RESTORED,
        "1 placeholder replaced by original text: the output is private; no original is stored for 1 placeholder "
        "(credentials are never stored)",
    )
    assert json.loads(ran("report", task_id, "--restore", "--json")[1])["markdown"] == RESTORED


def test_without_the_key_the_report_is_read_and_not_restored(task_id: str, ran: Run) -> None:
    (Settings().key_file).unlink()
    assert ran("report", task_id) == (0, REPORT, "")
    code, out, err = ran("report", task_id, "--restore")
    assert (code, out) == (2, "")
    assert err == (
        "waystation: the vault with the originals behind placeholders is encrypted, and the key is missing: set "
        f"WAYSTATION_KEY to the key of the workers, or restore their key file as {Settings().key_file}"
    )
    assert not Settings().key_file.exists()


def test_another_key_is_refused_by_the_name_of_where_it_came_from(
    task_id: str, ran: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Settings().key_file.write_bytes(bytes(32))
    code, out, err = ran("report", task_id, "--restore")
    assert (code, out) == (2, "")
    assert err.startswith(
        f"waystation: the key in {Settings().key_file} is not the key that this data was encrypted with"
    )
    monkeypatch.setenv("WAYSTATION_KEY", HEX)
    assert ran("report", task_id, "--restore")[2].startswith("waystation: the key in WAYSTATION_KEY is not the key")
    Settings().key_file.write_bytes(b"short")
    monkeypatch.delenv("WAYSTATION_KEY")
    assert (
        "is not a key file, because it has 5 bytes instead of 32: restore the right file"
        in ran("report", task_id, "--restore")[2]
    )


def test_an_older_key_that_is_named_opens_what_it_encrypted(
    task_id: str, ran: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_PREVIOUS_KEYS", Settings().key_file.read_bytes().hex())
    monkeypatch.setenv("WAYSTATION_KEY", HEX)
    assert ran("report", task_id, "--restore")[1] == RESTORED


def test_another_tenant_is_refused(task_id: str, ran: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_TENANT", "others")
    code, out, err = ran("report", task_id, "--restore")
    assert (code, out) == (2, "")
    assert err.startswith(f"waystation: no task in this store has an id that starts with '{task_id}'")


def test_any_text_of_the_tenant_is_restored_as_it_was_redacted(task_id: str, ran: Run, tmp_path: Path) -> None:
    assert task_id
    (tmp_path / "notes.md").write_text(REPORT, "utf-8")
    assert ran("privacy", "redact", "--restore", str(tmp_path / "notes.md"))[:2] == (0, RESTORED)
    code, out, _ = ran("privacy", "redact", "--restore", str(tmp_path / "notes.md"), "--json")
    assert (code, json.loads(out)) == (0, {"text": RESTORED, "replaced": 1, "unknown": 1})


def test_a_run_is_one_file_that_loads_nothing_and_has_originals_only_where_they_were_asked_for(
    task_id: str, ran: Run, tmp_path: Path
) -> None:
    assert ran("show", task_id, "--html", str(tmp_path / "run.html")) == (0, str(tmp_path / "run.html"), "")
    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert "default-src &#39;none&#39;" in page
    assert not re.findall(r"<script|src=|<link|@import|url\(", page)
    assert (escape(PLACEHOLDER) in page, ADA in page) == (True, False)

    code, _, said = ran("show", task_id, "--html", str(tmp_path), "--restore")
    whole = (tmp_path / f"{task_id}.html").read_text(encoding="utf-8")
    assert (code, "1 placeholder replaced by original text" in said) == (0, True)
    assert (escape(PLACEHOLDER) in whole, ADA in whole, escape(CREDENTIAL) in whole) == (False, True, True)


def test_what_only_a_file_can_have_is_refused_without_one(task_id: str, ran: Run) -> None:
    assert "add --html FILE" in ran("show", task_id, "--restore")[2]
    assert "use one of them" in ran("show", task_id, "--context", "--html", "run.html")[2]
