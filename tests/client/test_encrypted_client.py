"""What a person with the key, another key or none is told, on a real server with a real store."""

import json
import signal
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from urllib.request import urlopen
from uuid import uuid4

import psutil
import pytest
from pydantic import SecretStr
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from tests.end_to_end.shell import Shell, wait_until
from tests.support.stub_workflows import StubSessionWorkflow, StubTaskWorkflow
from waystation.cli.console import BAD_USAGE, format_error, get_error_exit_code
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel import temporal_names as names
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, WrongKey
from waystation.privacy.key_file import compute_key_check
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, build_payload_codec
from waystation.runtime.temporal.connect import TemporalTarget, connect
from waystation.tasks.task import TaskRequest
from waystation.workers.wiring import run_configured_workers

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def settings_with(home: Path, key: bytes | None) -> Settings:
    """Payloads are encrypted, and the store is not: it would be the first to say that a key is missing."""
    return Settings(home=home, key=None if key is None else SecretStr(key.hex()), encrypt_at_rest=False)


@pytest.fixture
async def home(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[Path]:
    """Of a platform that encrypts: its workers poll, and have left the check of their key in the store."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'waystation.db'}")
    settings = settings_with(tmp_path, KEY)
    store = await SqlStore.open(settings.database_url, utc_now)
    assert await store.claim_key(compute_key_check(KEY))
    await store.aclose()
    async with Worker(
        await connect(temporal_server, build_client_data_converter(settings)),
        task_queue=names.WORKFLOWS_QUEUE,
        workflows=[StubSessionWorkflow, StubTaskWorkflow],
        workflow_runner=UnsandboxedWorkflowRunner(),
    ):
        yield tmp_path


def asked() -> TaskRequest:
    return TaskRequest(question="Which?", session=uuid4().hex, request_id=uuid4().hex)


async def test_with_the_key_all_goes_as_without_encryption(home: Path) -> None:
    async with await Client.connect(settings_with(home, KEY)) as client:
        task_id = (await client.submit(asked(), ())).task_id
        assert (await client.approve(task_id, request_id="r1", note="by the widow")).outcome == "approved"
        assert (await client.get_task(task_id)).phase.over


async def test_without_a_key_nothing_is_shown_and_no_answer_is_sent_in_plain(home: Path) -> None:
    async with await Client.connect(settings_with(home, KEY)) as client:
        task_id = (await client.submit(asked(), ())).task_id
    async with await Client.connect(settings_with(home / "elsewhere", None)) as client:
        with pytest.raises(WrongKey, match="there is no key on this machine: set WAYSTATION_KEY") as shown:
            await client.get_task(task_id)
        with pytest.raises(WrongKey):
            await client.approve(task_id, request_id="r1", note="by the widow")
    async with await Client.connect(settings_with(home, KEY)) as client:
        assert not (await client.get_task(task_id)).phase.over
    assert get_error_exit_code(shown.value) == BAD_USAGE
    assert format_error(shown.value) == str(shown.value)


async def test_with_another_key_nothing_is_sent_that_no_worker_could_read(home: Path) -> None:
    async with await Client.connect(settings_with(home, OTHER)) as client:
        with pytest.raises(
            BadInput, match="the key in WAYSTATION_KEY is not the key that this data was encrypted with"
        ):
            await client.submit(asked(), ())


async def test_workers_with_another_key_do_not_start_whatever_queues_they_serve(home: Path) -> None:
    settings = settings_with(home, OTHER).replace(queues="workflows", qdrant_url="http://127.0.0.1:1")
    with pytest.raises(BadInput, match="the key in WAYSTATION_KEY is not the key that this data was encrypted with"):
        async with run_configured_workers(settings):
            pass


# ---------------------------------------------------------------------------------------------------------- settings


def test_encryption_is_on_where_a_key_is_set_and_off_where_one_is_made(tmp_path: Path) -> None:
    assert settings_with(tmp_path, KEY).encrypts_payloads
    made = settings_with(tmp_path, None)
    assert not made.encrypts_payloads
    assert build_payload_codec(made).key_id is None
    assert not made.key_file.exists()
    asked_for = made.replace(encrypt_payloads=True)
    assert build_payload_codec(asked_for).key_id is not None
    assert made.key_file.exists()
    assert not settings_with(tmp_path, KEY).replace(encrypt_payloads=False).encrypts_payloads


def test_previous_keys_that_are_none_are_refused_without_being_shown(tmp_path: Path) -> None:
    settings = settings_with(tmp_path, KEY).replace(previous_keys=SecretStr("c0ffee"))
    with pytest.raises(BadInput, match=r"^WAYSTATION_PREVIOUS_KEYS: the key must be 32 bytes") as refused:
        build_payload_codec(settings)
    assert "c0ffee" not in str(refused.value)


# ---------------------------------------------------------------------------------------------------------- commands


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    started = Shell(tmp_path / "home", {"WAYSTATION_KEY": KEY.hex()})
    yield started
    started.run("down")


def test_a_platform_that_encrypts_serves_a_codec_to_its_ui_and_ends_it(shell: Shell) -> None:
    up = shell.run("up")
    assert up.returncode == 0, up.stderr
    status = shell.run_json("status")
    with urlopen(f"{status['ui_url']}/api/v1/settings") as answer:  # the UI's own server on loopback
        published = answer.read().decode()
    assert not json.loads(published)["Codec"]["Endpoint"]
    # Everybody on this machine reads what the UI publishes, and the arguments of every process.
    secret = status["codec_endpoint"].rsplit("/", 1)[1]
    said = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert (len(secret), secret in published, secret in " ".join(said)) == (32, False, False)
    assert status["codec_endpoint"] in up.stderr + up.stdout
    host = status["codec_endpoint"].split("/")[2]
    assert f"a codec server at {host} decrypts payloads for the UI" in shell.run("doctor").stdout
    assert status["codec_endpoint"] not in shell.run("doctor").stdout
    wrong = shell.with_settings(WAYSTATION_KEY=OTHER.hex()).run("doctor")
    assert "FAIL payloads: the key in WAYSTATION_KEY is not the key that this data was encrypted with" in wrong.stdout
    assert shell.run("down").returncode == 0
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://{host}")


def test_the_codec_server_says_where_it_is_and_which_pages_may_ask(shell: Shell, tmp_path: Path) -> None:
    log = tmp_path / "codec.log"
    process = shell.start("codec-server", "--origin", "https://cloud.temporal.io/", log=log)
    wait_until(lambda: "Ctrl-C" in log.read_text(), 60, "its first words")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    first, second = log.read_text().splitlines()[:2]
    assert first.startswith("http://127.0.0.1:")
    assert "Allowed pages: https://cloud.temporal.io." in second


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--origin", "cloud.temporal.io"), "is not a web address"),
        (("--listen", "0.0.0.0:8081"), "set WAYSTATION_CODEC_TOKEN"),
        (("--listen", "here"), "write it as host:port"),
    ],
)
def test_a_codec_server_that_cannot_be_is_refused(shell: Shell, arguments: tuple[str, ...], why: str) -> None:
    done = shell.run("codec-server", *arguments)
    assert (done.returncode, why in done.stderr) == (2, True), done.stderr


def test_a_codec_server_without_a_key_is_refused(tmp_path: Path) -> None:
    done = Shell(tmp_path, {}).run("codec-server")
    assert (done.returncode, "decryption needs a key" in done.stderr) == (2, True)
