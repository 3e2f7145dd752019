"""A platform was stopped, and another server listens at its address: nobody takes that one for it."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.task_model import ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import TENANT, run_platform, wait_until
from waystation.cli.follow import watch_task
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.errors import Unreachable
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.run_file import ProcessIdentity, RunFile, write_run_file
from waystation.tasks.view import ApprovalView

DAY = datetime(2026, 1, 1, tzinfo=UTC)


async def test_who_follows_a_task_is_told_that_its_platform_was_stopped_though_a_server_answers_there(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.delenv("TEMPORAL_ADDRESS", raising=False)
    address, settings = server.service_client.config.target_host, Settings(tenant=TENANT)
    asked: list[str] = []

    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as platform:
        mark = ProcessIdentity.from_pid(platform.pid)

        async def stop(_client: Client, _task: str, approval: ApprovalView) -> None:
            asked.append(approval.agent)
            platform.kill()
            platform.wait()

        run = RunFile(address=address, namespace="default", ui_url="", server=mark, workers=mark, started=DAY)
        write_run_file(settings.run_file, run)
        async with (
            run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
            await Client.connect(settings) as client,
        ):
            await counter.submit(under=make_tight_budget_config())
            task = counter.get_task_handle().id

            async def paused() -> bool:
                return len((await client.get_task(task)).approvals) == 2

            await wait_until(paused)
            with pytest.raises(
                Unreachable,
                match=f"the platform was stopped; {task} is safe and continues after `waystation up`",
            ):
                await watch_task(client, task, stop)
            with pytest.raises(Unreachable, match="no Temporal server runs on this machine, and none is configured"):
                await client.cancel(task)
            again = ProcessIdentity.from_pid(os.getpid())
            write_run_file(settings.run_file, run.replace(server=again, workers=again))
            assert len((await client.get_task(task)).approvals) == 2
    assert asked
