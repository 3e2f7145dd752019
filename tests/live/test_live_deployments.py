"""Builds whose commands differ: rolled out and back while tasks wait, and no task is patched."""

import asyncio
import json
import os
import re
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from temporalio.client import Client, WorkflowFailureError

from tests.support.builds import NEW, OLD, fetch_build_id, list_builds, run_build, trace_builds
from tests.support.rollout import check_rollout, list_open_requests, roll_out_and_back
from tests.support.task_model import ModelCall, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, open_activity_deps, run_cli, run_platform, wait_until
from waystation.activities import activity_errors
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "deploy-and-roll-back.md"
REVIEWED = make_task_config().replace(review_plan=True)
APPROVAL = {"request_id": "plan-1", "by": "Ada"}


async def wait_for_request(submitter: TaskSubmitter) -> None:
    async def asks() -> bool:
        return bool(await list_open_requests(submitter.get_task_handle()))

    await wait_until(asks)


async def test_a_waiting_task_moves_to_the_new_build_and_the_old_one_can_be_retired(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        deployment, submitter = TemporalDeploymentClient(server), TaskSubmitter(server, parts.store)
        task = submitter.get_task_handle()
        async with run_build(server, parts, OLD):
            await submitter.submit(under=REVIEWED)
            await wait_for_request(submitter)
            async with run_build(server, parts, NEW):
                await deployment.set_current(NEW)
                assert await deployment.nudge_tasks() == 1

                async def drained() -> bool:
                    return [build.state for build in await list_builds(server)] == ["current", "drained"]

                await wait_until(drained)
        async with run_build(server, parts, NEW):
            await task.signal(APPROVE_BUDGET, APPROVAL)
            assert (await task.result()).phase is TaskPhase.DONE
        assert (await trace_builds(server, task.id)).builds == (OLD, NEW)


async def run_reset_of_the_page(server: Client, task_id: str, build_id: str) -> None:
    """Run the command that the page gives for a task whose build cannot continue it."""
    found = re.search(r"^ *(temporal workflow reset .*?)\n *```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    command = found[1].replace("--workflow-id TASK", f"--workflow-id {task_id}").replace("TO_BUILD", build_id)
    environment = {**os.environ, "TEMPORAL_ADDRESS": server.service_client.config.target_host}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ran = await asyncio.create_subprocess_shell(command, env=environment)
    assert await ran.wait() == 0


async def test_a_task_whose_build_is_gone_continues_on_the_new_build_after_a_reset(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        deployment, submitter = TemporalDeploymentClient(server), TaskSubmitter(server, parts.store)
        task = submitter.get_task_handle()
        async with run_build(server, parts, OLD):
            await submitter.submit(under=REVIEWED)
            await wait_for_request(submitter)
        async with run_build(server, parts, NEW):
            await deployment.set_current(NEW)
            assert await deployment.nudge_tasks() == 1
            await asyncio.sleep(2)
            assert await fetch_build_id(server, task.id) == OLD
            await run_reset_of_the_page(server, task.id, NEW)
            await wait_for_request(submitter)
            assert await fetch_build_id(server, task.id) == NEW
            await task.signal(APPROVE_BUDGET, APPROVAL)
            assert (await task.result()).phase is TaskPhase.DONE


async def test_the_command_shows_builds_chooses_one_and_rolls_back(
    server: Client,
    tmp_path: Path,
    redactor: Redactor,
    cli_settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    none = await run_cli(capsys, "deploy", "status")
    async with (
        open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts,
        run_build(server, parts, OLD),
        run_build(server, parts, NEW),
    ):
        shown = [await run_cli(capsys, "deploy", "status")]
        early = await run_cli(capsys, "deploy", "rollback")
        used = await run_cli(capsys, "deploy", "use", NEW)
        shown.append(await run_cli(capsys, "deploy", "status"))
        unknown = await run_cli(capsys, "deploy", "use", "3.0")
        back = await run_cli(capsys, "deploy", "rollback", "--json")
        listed = await run_cli(capsys, "deploy", "status", "--json")
    assert none == (
        2,
        "",
        snapshot(
            "waystation: the server has no deployment waystation: start workers with WAYSTATION_VERSIONING=true, which "
            "create it\n"
        ),
    )
    assert shown == snapshot(
        [
            (
                0,
                """\
1.0  current  0 tasks; workers on all queues
2.0  inactive  0 tasks; workers on all queues
""",
                "",
            ),
            (
                0,
                """\
2.0  current  0 tasks; workers on all queues
1.0  drained  0 tasks; workers on all queues
""",
                "",
            ),
        ]
    )
    assert early == (
        2,
        "",
        snapshot(
            "waystation: there is no earlier build to roll back to: `waystation deploy status` lists all builds\n"
        ),
    )
    assert used == snapshot((0, "The build 2.0 is current: new tasks go to it.\n", ""))
    assert unknown == (
        2,
        "",
        snapshot("waystation: no workers of build 3.0 have run: `waystation deploy status` lists all builds\n"),
    )
    assert json.loads(back[1]) == {"build_id": OLD, "nudged": 0}
    builds = json.loads(listed[1])
    assert [(one["build_id"], one["state"], one["tasks"]) for one in builds] == [
        (OLD, "current", 0),
        (NEW, "drained", 0),
    ]


async def test_an_agent_whose_work_meets_an_unexpected_error_asks_a_person_and_goes_on(
    server: Client, tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activity_errors, "MAX_UNEXPECTED_FAILURES", 2)
    mended = asyncio.Event()

    async def fail(call: ModelCall) -> None:
        if call == ModelCall("tides", 3) and not mended.is_set():
            raise KeyError("a text that must not be seen")

    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=fail)) as platform:
        await platform.submit()
        await wait_for_request(platform)
        (request,) = (await platform.get_task_handle().query(TaskWorkflow.progress)).approvals
        mended.set()
        await platform.get_task_handle().signal(APPROVE_BUDGET, {"request_id": request.request_id, "by": "Ada"})
        progress = await platform.get_task_handle().result()
    assert (request.agent, request.requested) == ("tides", Amount())
    assert "an unexpected error, 2 times: KeyError" in request.reason
    assert "seen" not in request.reason
    assert progress.phase is TaskPhase.DONE


async def test_without_versioning_the_other_commands_would_break_the_task(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        submitter = TaskSubmitter(server, parts.store)
        async with run_build(server, parts, OLD, versioning=False):
            await submitter.submit(under=REVIEWED)
            await wait_for_request(submitter)
        async with run_build(server, parts, NEW, versioning=False):
            await submitter.get_task_handle().signal(APPROVE_BUDGET, APPROVAL)
            with pytest.raises(WorkflowFailureError) as caught:
                await submitter.get_task_handle().result()
        assert "Nondeterminism" in str(caught.value.cause)


async def test_tasks_that_wait_or_work_survive_a_rollout_and_a_rollback(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    check_rollout(await roll_out_and_back(server, tmp_path, redactor, ("budget", "leg", "subagent")))
