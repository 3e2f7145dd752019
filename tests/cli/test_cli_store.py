"""`waystation store` and the store's line in `waystation doctor`."""

import io
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.postgres_server import PASSWORD, PostgresServer
from waystation.cli.main import run
from waystation.store.schema import REVISION

CLOSED = "postgres://me:hush@127.0.0.1:1/waystation"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")


@pytest.fixture
def empty_url(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> str:
    url = postgres.new_database()
    monkeypatch.setenv("DATABASE_URL", url)
    return url


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = run(arguments)
    said = capsys.readouterr()
    assert PASSWORD not in said.out + said.err
    return code, said.out + said.err


def store_check(capsys: pytest.CaptureFixture[str]) -> Mapping[str, object]:
    _, said = told(["doctor", "--json"], capsys)
    return next(check for check in json.loads(said) if check["name"] == "store")


def test_an_operator_migrates_an_empty_database_once(empty_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    place = empty_url.rpartition("@")[2]
    code, said = told(["store", "status"], capsys)
    assert (code, said.splitlines()[0]) == (1, f"postgresql at {place}")
    assert "the database is empty" in said
    assert told(["list"], capsys)[0] == 1
    assert told(["store", "migrate"], capsys) == (0, f"Upgraded from an empty database to schema {REVISION}.\n")
    assert told(["store", "migrate"], capsys) == (0, f"The database already has schema {REVISION}: nothing to do.\n")
    code, said = told(["store", "status", "--json"], capsys)
    status = json.loads(said)
    assert code == 0
    assert status == {
        "backend": "postgresql",
        "place": place,
        "store_id": status["store_id"],
        "schema_here": REVISION,
        "schema_needed": REVISION,
        "ready": True,
        "encrypted": 0,
        "plain": 0,
        "finding": "ready",
    }
    code, said = told(["store", "migrate", "--json"], capsys)
    assert json.loads(said) == {"before": REVISION, "after": REVISION, "store_id": status["store_id"]}
    assert told(["list", "--json"], capsys) == (0, "[]\n")


def test_the_doctor_says_what_to_do_about_the_store(
    empty_url: str, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def found(url: str) -> tuple[object, object, str]:
        monkeypatch.setenv("DATABASE_URL", url)
        check = store_check(capsys)
        return check["ok"], check["reachable"], str(check["finding"])

    assert found(empty_url)[:2] == (False, True)
    assert found(empty_url)[2].endswith("run `waystation store migrate`")
    assert found("mysql://db/waystation")[2].startswith("the database URL cannot be used: write it as postgresql://")
    assert found(CLOSED)[:2] == (False, False)
    assert "check that it runs and that DATABASE_URL names it" in found(CLOSED)[2]
    assert "correct them" in found(empty_url.replace(PASSWORD, "wrong"))[2]
    assert run(["store", "migrate"]) == 1  # with the wrong password
    monkeypatch.setenv("DATABASE_URL", empty_url)
    assert run(["store", "migrate"]) == 0
    capsys.readouterr()
    assert found(empty_url) == (True, True, f"postgresql at {empty_url.rpartition('@')[2]}, schema {REVISION}")
    postgres.run("UPDATE alembic_version SET version_num = '0999'", empty_url.rpartition("/")[2])
    assert "update Waystation" in found(empty_url)[2]


@pytest.mark.parametrize("command", [["list"], ["store", "migrate"], ["store", "status"]])
def test_a_database_that_does_not_answer_is_code_3_without_the_password(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", CLOSED)
    code, said = told([*command, "--debug"], capsys)
    assert code == 3
    assert said.splitlines()[-1].startswith("waystation: the database is not available")
    assert "hush" not in said


def test_reseal_says_what_it_rewrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = "11" * 32, "22" * 32
    monkeypatch.setenv("WAYSTATION_KEY", old)
    monkeypatch.setattr("sys.stdin", io.StringIO("hush"))
    assert run(["secrets", "set", "WIKI_TOKEN"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("WAYSTATION_KEY", new)
    monkeypatch.setenv("WAYSTATION_PREVIOUS_KEYS", old)
    assert told(["store", "reseal"], capsys) == (
        0,
        "0 texts rewritten: encrypted with the present key, each bound to its row.\n"
        "0 proofs of ownership (of tasks, agent runs and texts) rewritten.\n"
        "Vault, rewritten with the present key: 0 originals, 1 secret of tool servers, and 0 proofs that a "
        "value occurred in a session.\n",
    )
    code, said = told(["store", "reseal", "--json"], capsys)
    assert (code, json.loads(said)) == (
        0,
        {
            "texts": 0,
            "owner_proofs": 0,
            "vault": {"originals": 0, "secrets": 1, "session_proofs": 0, "unreadable": 0},
        },
    )
    monkeypatch.setenv("WAYSTATION_KEY", old)
    monkeypatch.delenv("WAYSTATION_PREVIOUS_KEYS")
    code, said = told(["secrets", "list"], capsys)
    assert (code, "this store was rewritten with a newer key" in " ".join(said.split())) == (2, True)
    code, said = told(["store", "adopt-key", "--yes"], capsys)
    assert (code, said) == (0, "The store now has this machine's key. Restart all workers with this key.\n")
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "other"))
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{tmp_path / 'home' / 'waystation.db'}")
    assert told(["secrets", "list"], capsys)[0] == 0
