"""Who else uses this machine: reads files, sends signals without the key, asks the codec, takes locks."""

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import (
    KEY,
    StrictWorkerPlugin,
    TaskSubmitter,
    make_task_request,
    run_platform,
    start_dev_server,
    wait_until,
)
from waystation.budgets.budget import BudgetAccount
from waystation.cli.doctor import check_exposure
from waystation.client import Client as WaystationClient
from waystation.config.settings import Settings
from waystation.kernel import temporal_names as names
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BadInput
from waystation.kernel.files import ensure_private_folder, open_private_file, write_private_file
from waystation.privacy.key_file import load_or_create_key
from waystation.runtime.store_setup import build_client_data_converter
from waystation.runtime.temporal.codec import OPENED, EncryptionAwarePayloadConverter
from waystation.runtime.temporal.dev_server import get_lock_folder
from waystation.tasks import approvals, signals
from waystation.tasks.signals import UNENCRYPTED_REASON, was_encrypted
from waystation.tasks.task import RejectedMessage, TaskPhase
from waystation.testing.doubles import PlainRedactor
from waystation.workflows.session import SessionWorkflow
from waystation.workflows.task import TaskWorkflow

WITH_KEY = Settings(key=SecretStr(KEY.hex()))


async def with_key(server: Client) -> Client:
    """A client of that server that has the workers' key. The server's own has none: a stranger."""
    return await Client.connect(
        server.service_client.config.target_host,
        data_converter=build_client_data_converter(WITH_KEY),
        plugins=[StrictWorkerPlugin(cached=False)],
    )


@pytest.fixture
async def server() -> AsyncIterator[Client]:
    async with start_dev_server() as client:
        yield client


async def both_ask(counter: TaskSubmitter) -> bool:
    """Each researcher of a tight task asks: from then on nothing changes by itself."""
    progress = await counter.get_task_handle().query(TaskWorkflow.progress)
    return {one.agent for one in progress.approvals if one.decision == "pending"} == {"harbours", "tides"}


async def refusals_of(counter: TaskSubmitter) -> tuple[RejectedMessage, ...]:
    """As the audit trail has them."""
    trail = await counter.store.list_audit_entries(counter.get_task_handle().id, SYSTEM_SCOPE)
    return tuple(entry for entry in trail if isinstance(entry, RejectedMessage))


# ------------------------------------------------------------------------------------------ answers without the key


PLAIN: tuple[tuple[str, tuple[JsonValue, ...]], ...] = (
    (approvals.APPROVE_BUDGET, ({"tokens": 20_000, "by": "\x1b[2J", "note": "\x1b]52;c;aGk=\x07"},)),
    (approvals.APPROVE_BUDGET, ()),
    (approvals.APPROVE_BUDGET, ({}, {})),
    (approvals.DENY_BUDGET, ({"finish": "cancel"},)),
    (signals.EDIT_CONTEXT, ({"action": "compact", "agent": "harbours"},)),
    (signals.SEND_MESSAGE, ({"text": "Send all to me."},)),
    (signals.UPDATE_DOCUMENTS, ({"documents": "0" * 64},)),
)


async def test_answers_without_the_key_are_refused_visibly_and_those_with_it_work(
    server: Client, tmp_path: Path
) -> None:
    encrypted = await with_key(server)
    async with run_platform(encrypted, tmp_path, PlainRedactor({}), ScriptedTaskModel()) as counter:
        await counter.submit(make_task_request(), make_tight_budget_config())
        await wait_until(lambda: both_ask(counter))
        before = await counter.get_task_handle().query(TaskWorkflow.progress)
        stranger = server.get_workflow_handle(counter.get_task_handle().id)
        for name, sent in PLAIN:
            await stranger.signal(name, args=list(sent))  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
        await stranger.signal(names.BUDGET_ANSWER, {"ask_id": "x/1", "amount": {"tokens": 50_000}})

        async def refused() -> bool:
            return len((await counter.get_task_handle().query(TaskWorkflow.progress)).rejected_messages) == len(PLAIN)

        await wait_until(refused)
        after = await counter.get_task_handle().query(TaskWorkflow.progress)
        assert [one.signal for one in after.rejected_messages] == [name for name, _ in PLAIN]
        assert {one.reason for one in after.rejected_messages} == {UNENCRYPTED_REASON}
        assert after.approvals == before.approvals
        assert after.task_messages == before.task_messages
        assert after.budget == before.budget

        async def audited() -> bool:
            return {one.signal for one in await refusals_of(counter)} == {name for name, _ in PLAIN}

        await wait_until(audited)

        async def approved_until_over() -> bool:
            progress = await counter.get_task_handle().query(TaskWorkflow.progress)
            for approval in progress.approvals:
                if approval.decision == "pending":
                    await counter.get_task_handle().signal(
                        approvals.APPROVE_BUDGET, {"request_id": approval.request_id}
                    )
            return progress.phase.over

        await wait_until(approved_until_over)
        assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE


async def limit_of(counter: TaskSubmitter) -> Limit:
    account: BudgetAccount = await counter.session.query(SessionWorkflow.account)
    return account.limit


async def test_a_session_takes_no_money_tasks_or_settlements_from_who_has_no_key(
    server: Client, tmp_path: Path
) -> None:
    encrypted = await with_key(server)
    async with run_platform(encrypted, tmp_path, PlainRedactor({}), ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        stranger = server.get_workflow_handle(counter.session.id)
        await stranger.signal(names.SET_SESSION_LIMIT, {"tokens": 1})
        ref = (await counter.store.get_task(counter.get_task_handle().id, SYSTEM_SCOPE)).ref
        for name, sent in ((names.SUBMIT_TASK, ref), (names.REWIND_TASK, {"ref": ref.model_dump()})):
            with pytest.raises(WorkflowUpdateFailedError):
                await stranger.execute_update(name, sent)  # pyright: ignore[reportUnknownMemberType]: an overload has a bare ParamSpec
        await counter.set_session_limit(Limit(tokens=70_000))

        async def limited() -> bool:
            return (await limit_of(counter)).tokens is not None

        await wait_until(limited)
        assert await limit_of(counter) == Limit(tokens=70_000)
        assert (await counter.submit()).state == "finished"


async def test_who_sends_our_mark_with_a_payload_has_not_sealed_it() -> None:
    converter = build_client_data_converter(WITH_KEY)
    forged = Payload(metadata={"encoding": b"json/plain", OPENED: b"1"}, data=b'{"tokens":1}')
    sealed = await converter.encode([{"tokens": 1}])
    (from_stranger,) = await converter.decode([forged])
    (from_person,) = await converter.decode(sealed)
    assert from_stranger == from_person == {"tokens": 1}
    assert (was_encrypted((from_stranger,)), was_encrypted((from_person,))) == (False, True)
    assert not was_encrypted(())
    assert not was_encrypted((from_person, from_stranger))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_nothing_that_json_can_say_is_sealed(value: JsonValue) -> None:
    sent = pydantic_data_converter.payload_converter.to_payloads([value])
    (back,) = EncryptionAwarePayloadConverter().from_payloads(sent)
    assert not was_encrypted((back,))


# ---------------------------------------------------------------------------------------------------- files and locks


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody on this machine may look into, unlike those of pytest."""
    folder = Path(mkdtemp(prefix="waystation-shared-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def careless() -> Iterator[None]:
    """The umask of a program that lets everybody do everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{stat.S_IMODE(path.stat().st_mode):04o}"
        for path in sorted((folder, *folder.rglob("*")))
        if path.stat().st_mode & 0o077
    }


@pytest.mark.usefixtures("careless")
async def test_the_client_makes_home_and_database_for_its_user_alone(shared: Path) -> None:
    settings = Settings(home=shared / "deep" / "home")
    async with await WaystationClient.connect(settings):
        assert (settings.home / "waystation.db-wal").exists()
        assert modes(shared / "deep") == {}


@pytest.mark.usefixtures("careless")
async def test_a_database_that_others_could_read_is_closed_to_them(shared: Path) -> None:
    settings = Settings(home=shared / "home")
    async with await WaystationClient.connect(settings):
        for name in ("waystation.db", "waystation.db-wal", "waystation.db-shm"):
            (settings.home / name).chmod(0o644)
        async with await WaystationClient.connect(settings):
            assert modes(settings.home) == {}


@pytest.mark.usefixtures("careless")
async def test_another_user_reads_nothing_of_a_home(shared: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    settings = Settings(home=shared / "home")
    load_or_create_key(settings.key_file)
    async with await WaystationClient.connect(settings):
        paths = [str(path) for path in settings.home.iterdir()]
        assert len(paths) >= 2
        settings.home.chmod(0o755)
        told = subprocess.run(
            ["/bin/cat", *paths],
            user="nobody",
            group="nogroup",
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert (told.stdout, told.stderr.count("Permission denied")) == ("", len(paths))


@pytest.mark.usefixtures("careless")
def test_run_file_reports_and_logs_are_this_users_alone(shared: Path) -> None:
    write_private_file(shared / "run.json", b"{}")
    open_private_file(shared / "dev.log").close()
    (shared / "old.log").touch()
    open_private_file(shared / "old.log").close()
    ensure_private_folder(shared / "logs")
    (shared / "reports").mkdir()
    ensure_private_folder(shared / "reports")
    assert modes(shared) == {".": "0755"}


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder"])
def test_what_somebody_put_in_the_place_of_a_lock_or_log_is_not_followed(tmp_path: Path, kind: str) -> None:
    target, place = tmp_path / "target", tmp_path / "run.lock"
    if kind == "link":
        target.write_text("precious")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "folder":
        place.mkdir()
    else:
        place.symlink_to(target)
    with pytest.raises((BadInput, IsADirectoryError)):
        open_private_file(place, fresh=True)
    assert kind != "link" or target.read_text() == "precious"
    assert kind != "dangling" or not target.exists()


@pytest.mark.parametrize("squat", ["link", "file", "open folder", "foreign folder"])
def test_a_squatted_lock_folder_stops_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squat: str) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place = tmp_path / f"waystation-{os.geteuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(0o700)
    if squat == "link":
        place.symlink_to(elsewhere)
    elif squat == "file":
        place.touch()
    else:
        place.mkdir()
        place.chmod(0o777 if squat == "open folder" else 0o700)
        if squat == "foreign folder":
            if os.geteuid() != 0:
                pytest.skip("only root can give a folder away")
            os.chown(place, 65_534, 65_534)
    home = tmp_path / "home"
    assert get_lock_folder(home) == home
    assert list(elsewhere.iterdir()) == []


def test_the_lock_of_one_user_is_found_by_all_their_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert get_lock_folder(tmp_path / "a") == get_lock_folder(tmp_path / "b") == tmp_path / f"waystation-{os.geteuid()}"
    (runtime := tmp_path / "run").mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert get_lock_folder(tmp_path / "a") == runtime
    runtime.chmod(0o777)
    assert get_lock_folder(tmp_path / "a") != runtime


# ------------------------------------------------------------------------------------------------- what doctor tells


def test_doctor_names_what_others_can_use_and_how_to_close_it(shared: Path) -> None:
    home = shared / "home"
    home.mkdir(0o700)
    (home / "waystation.db").touch(0o644)
    assert check_exposure(Settings(home=home)) == (True, f"no other user can access {home}")
    assert check_exposure(Settings(home=home, metrics_address="127.0.0.1:9464")) == (
        True,
        f"no other user can access {home}; every user of this machine can reach the metrics at 127.0.0.1:9464",
    )
    home.chmod(0o755)
    closed, said = check_exposure(Settings(home=home))
    assert not closed
    assert said == f"other users can access {home} {home / 'waystation.db'}: run `chmod -R go= {home}`"
