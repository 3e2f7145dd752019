"""Hooks of compactions as people write them, and a worker's hooks made of them."""

import sys
from contextlib import aclosing
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from tests.support.webhook_server import run_webhook_server
from waystation.agents.compactor import CompactionHooks
from waystation.cli.console import BAD_USAGE, format_error, get_error_exit_code
from waystation.config.settings import Settings
from waystation.context.compaction import CompactionEvent
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.runtime.hooks import CommandCompactionHook, HttpCompactionHook
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import RecordingMeter
from waystation.workers.activity_deps import open_activity_deps
from waystation.workers.external_systems import open_compaction_hooks

EVENT = CompactionEvent(
    event="before", trigger="auto", task="t", agent="a", run_id="t/a", strategy="ends", tokens=1, window=2
)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    return tmp_path / "config.toml"


async def test_without_settings_there_are_no_hooks() -> None:
    async with open_compaction_hooks(Settings()) as hooks:
        assert hooks == CompactionHooks()


async def test_a_worker_calls_what_environment_and_config_file_name(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{sys.executable} -I -S -c \"import sys; open(sys.argv[1], 'w').write(sys.stdin.read())\" '{config}.told'"
    monkeypatch.setenv("WAYSTATION_COMPACTION_BEFORE", f" {line} ")
    async with run_webhook_server() as server:
        config.write_text(f'compaction_after = "{server.url}"\ncompaction_hook_blocks = true\n')
        async with open_compaction_hooks(Settings()) as hooks:
            assert (type(hooks.before), type(hooks.after), hooks.blocking) == (
                CommandCompactionHook,
                HttpCompactionHook,
                True,
            )
            assert await hooks.call_hook(EVENT) is None
            assert await hooks.call_hook(EVENT.replace(event="after")) is None
        assert [body["event"] for body in server.accepted_bodies] == ["after"]
    assert Path(f"{config}.told").read_text() == EVENT.json_line


def test_the_environment_says_whether_a_hook_blocks_and_beats_the_config_file(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('compaction_before = "http://one"\ncompaction_hook_blocks = false\n')
    monkeypatch.setenv("WAYSTATION_COMPACTION_BEFORE", "HTTP://two")
    monkeypatch.setenv("WAYSTATION_COMPACTION_HOOK_BLOCKS", "on")
    settings = Settings()
    assert (settings.compaction_before, settings.compaction_hook_blocks) == ("http://two/", True)


def test_hooks_are_not_shown() -> None:
    assert "hush" not in repr(Settings(compaction_before="notify --token hush", compaction_after="http://x/hush"))


@pytest.mark.parametrize(
    "given",
    [
        "http://",
        "https:///hush",
        "http://?hush",
        "http://[::hush",
        "ftp://hooks.example.com/hush",
        "notify 'hush",
        "  ",
    ],
)
def test_what_is_neither_command_line_nor_address_is_refused_by_its_setting_and_not_shown(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_COMPACTION_AFTER", given)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert get_error_exit_code(refused.value) == BAD_USAGE
    assert format_error(refused.value).startswith("WAYSTATION_COMPACTION_AFTER: it must be a command line ")
    assert "hush" not in f"{format_error(refused.value)}{refused.value}"


async def test_a_worker_with_a_hook_whose_program_is_not_there_does_not_start(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config.write_text('compaction_after = "nowhere-to-be-found --token hush"\n')
    with pytest.raises(BadInput) as in_file:
        async with open_compaction_hooks(Settings()):
            pass
    assert str(in_file.value).startswith(
        f"compaction_after in {config}: its program does not exist or is not executable"
    )
    assert "hush" not in str(in_file.value)
    monkeypatch.setenv("WAYSTATION_COMPACTION_AFTER", "nowhere-to-be-found")
    with pytest.raises(BadInput, match=r"^WAYSTATION_COMPACTION_AFTER: its program does not exist"):
        async with open_compaction_hooks(Settings()):
            pass


def test_an_argument_may_be_an_address() -> None:
    settings = Settings(compaction_before="curl --data @- http://x", webhook=SecretStr("http://y"))
    assert settings.compaction_before == "curl --data @- http://x"


async def test_what_makes_room_in_a_worker_has_its_hooks() -> None:
    settings = Settings(compaction_before="true", compaction_hook_blocks=True)
    async with (
        aclosing(await SqlStore.open(settings.database_url, utc_now)) as store,
        open_activity_deps(settings, store, RecordingMeter()) as parts,
    ):
        hooks = parts.compactor.hooks
    assert isinstance(hooks.before, CommandCompactionHook)
    assert (hooks.after, hooks.blocking) == (None, True)
