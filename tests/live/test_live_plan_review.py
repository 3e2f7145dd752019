"""A plan that a person agrees to, or changes, before anything is spent on its steps."""

import asyncio
import json
import shlex
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import SCRIPTED_PLAN, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, run_cli, run_platform, start_dev_server, wait_until
from waystation.agents.action_approvals import UnattendedPolicy
from waystation.cli import follow
from waystation.client import Client as Waystation
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.planning.plan import Plan
from waystation.privacy.ports import Redactor
from waystation.reports.task_files import get_plan_path
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET, REVIEW_PLAN
from waystation.tasks.task import TaskPhase, TaskProgress
from waystation.workflows.task import TaskWorkflow

REVIEWED = make_task_config().replace(review_plan=True)
PROMPT_SECONDS = 60
GOAL = "Read about tides and nothing else."


async def waiting(counter: TaskSubmitter) -> TaskProgress:
    async def paused() -> bool:
        return (await counter.get_task_handle().query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED

    await wait_until(paused)
    return await counter.get_task_handle().query(TaskWorkflow.progress)


async def kept(counter: TaskSubmitter, plan: Plan) -> str:
    task = (await counter.store.get_task(counter.get_task_handle().id, SYSTEM_SCOPE)).ref.scope
    return await counter.store.put_text(plan.model_dump_json(), task)


async def test_no_step_begins_until_a_person_has_agreed_to_the_plan(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=REVIEWED)
        progress = await waiting(counter)
        assert [(asked.request_id, asked.decision) for asked in progress.approvals] == [("plan-1", "pending")]
        assert {step.state for step in progress.steps} == {"waiting"}
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": "plan-1", "tokens": 5_000})
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": "plan-1", "by": "Ada"})
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert [asked.decision for asked in progress.approvals] == ["approved"]
    assert ["without an amount" in refused.reason for refused in progress.rejected_messages] == [True]


async def test_a_plan_that_a_person_sends_takes_the_place_of_the_one_that_waits(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    steps = {step.id: step for step in SCRIPTED_PLAN.steps}
    fewer = (
        steps["tides"].replace(goal=GOAL),
        steps["weigh"].replace(needs=("tides",)),
        steps["write"],
    )
    circle = (steps["tides"].replace(needs=("write",)), *fewer[1:])
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        wrong, right = await kept(counter, Plan(steps=circle)), await kept(counter, Plan(steps=fewer))

        async def refused() -> bool:
            return bool((await counter.get_task_handle().query(TaskWorkflow.progress)).rejected_messages)

        await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": wrong})
        await wait_until(refused)
        await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": right, "by": "Ada"})
        await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": right, "by": "Bob"})
        progress = await counter.get_task_handle().result()
        history = (await counter.get_task_handle().fetch_history()).to_json()
        versions = await counter.store.list_plan_versions(progress.task_id, SYSTEM_SCOPE)
        report = await counter.store.get_text(str(progress.report), SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.DONE
    assert [step.id for step in progress.steps] == ["tides", "weigh", "write"]
    assert report.count("- A person changed the plan before its steps began\n") == 1
    assert [(asked.decision, asked.by) for asked in progress.approvals] == [("approved", "Ada")]
    assert [refusal.signal for refusal in progress.rejected_messages] == [REVIEW_PLAN] * 2
    assert [version.plan.steps[0].goal for version in versions] == [SCRIPTED_PLAN.steps[0].goal, GOAL]
    assert GOAL not in history


async def test_agents_start_with_the_shares_that_a_person_gave_and_shares_over_the_budget_are_refused(
    server: Client, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    def sharing(*shares: str) -> Plan:
        steps = zip(SCRIPTED_PLAN.steps, shares, strict=True)
        return Plan(steps=tuple(step.replace(share=share) for step, share in steps))

    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        await Waystation.connect(remote_settings) as client,
    ):
        await counter.submit(under=make_task_config(budget=20_450).replace(review_plan=True))
        task_id = (await waiting(counter)).task_id
        with pytest.raises(BadInput, match=r"add up to 24,000 tokens, but the steps have only 20,000 tokens left"):
            await client.review_plan(task_id, sharing("12k", "12k", "", ""))
        over = await kept(counter, sharing("12k", "12k", "", ""))

        async def refused() -> bool:
            return bool((await counter.get_task_handle().query(TaskWorkflow.progress)).rejected_messages)

        await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": over})
        await wait_until(refused)
        answer = await client.review_plan(task_id, sharing("8k", "40%", "", ""), by="Ada")
        progress = await counter.get_task_handle().result()
        versions = await counter.store.list_plan_versions(progress.task_id, SYSTEM_SCOPE)
        (approval,) = progress.approvals
        approvals = (await client.get_task(task_id, details=True)).approvals
    assert answer.outcome == "approved"
    (sent_from,) = [one.sent_from for one in approvals if one.request_id == approval.request_id]
    assert sent_from is not None
    assert len(sent_from.identities) == 1
    assert [refusal.reason for refusal in progress.rejected_messages] == [
        "the shares add up to 24,000 tokens, but the steps have only 20,000 tokens left"
    ]
    assert [step.share for step in versions[-1].plan.steps] == ["8k", "40%", "", ""]
    assert len(versions) == 2, "the refused one is none of them"
    assert [step.limit.tokens for step in progress.steps] == [8_000, 8_000, 2_000, 2_000]
    assert progress.phase is TaskPhase.DONE


def not_worked_on(progress: TaskProgress, decision: str) -> None:
    assert progress.phase is TaskPhase.CANCELLED
    assert [asked.decision for asked in progress.approvals] == [decision]
    assert {step.state for step in progress.steps} == {"skipped"}


async def test_a_plan_that_is_denied_ends_the_task_before_its_steps(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        await counter.get_task_handle().signal(DENY_BUDGET, {})
        not_worked_on(await counter.get_task_handle().result(), "denied")


async def test_a_plan_that_nobody_answers_until_the_deadline_ends_the_task_before_its_steps(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(
            under=REVIEWED.replace(unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200)))
        )
        not_worked_on(await counter.get_task_handle().result(), "expired")


async def test_a_plan_whose_deadline_passed_waits_on_where_it_was_told_to(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(
            under=REVIEWED.replace(
                unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200), at_deadline="wait")
            )
        )
        asked = (await waiting(counter)).approvals[0].answer_by
        assert asked is not None

        async def overdue() -> bool:
            return utc_now() > asked

        await wait_until(overdue)
        assert (await counter.get_task_handle().query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"by": "Ada"})
        progress = await counter.get_task_handle().result()
    assert progress.phase is TaskPhase.DONE
    assert [asked.decision for asked in progress.approvals] == ["approved"]


async def test_a_task_that_is_cancelled_while_its_plan_waits_ends_without_its_steps(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        await counter.get_task_handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await counter.get_task_handle().result()
        progress = await counter.get_task_handle().query(TaskWorkflow.progress)
    assert progress.phase is TaskPhase.CANCELLED
    assert {step.state for step in progress.steps} == {"skipped"}
    assert progress.report is not None


async def test_a_plan_waits_through_the_end_of_its_workers_and_of_its_history(
    tmp_path: Path, redactor: Redactor
) -> None:
    async with start_dev_server("limit.historyCount.suggestContinueAsNew=10") as server:
        async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
            await counter.submit(under=REVIEWED)
            await waiting(counter)

            async def went_on() -> bool:
                runs = [run async for run in server.list_workflows(f'WorkflowId = "{counter.get_task_handle().id}"')]
                return len(runs) > 1

            await wait_until(went_on)
        async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
            fewer = Plan(steps=(SCRIPTED_PLAN.steps[0].replace(goal=GOAL), *SCRIPTED_PLAN.steps[1:]))
            sent = await kept(counter, fewer)
            await counter.get_task_handle().signal(REVIEW_PLAN, {"plan": sent, "by": "Ada", "request_id": "plan-1"})
            progress = await counter.get_task_handle().result()
            versions = await counter.store.list_plan_versions(progress.task_id, SYSTEM_SCOPE)
    assert progress.phase is TaskPhase.DONE
    assert [(asked.request_id, asked.decision, asked.by) for asked in progress.approvals] == [
        ("plan-1", "approved", "Ada")
    ]
    assert [version.plan.steps[0].goal for version in versions] == [SCRIPTED_PLAN.steps[0].goal, GOAL]


async def test_a_person_reads_the_plan_with_its_shares_and_sends_another_from_a_terminal(
    server: Client,
    tmp_path: Path,
    redactor: Redactor,
    cli_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changed = tmp_path / "plan.yaml"
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        task_id = counter.get_task_handle().id
        code, shown, _ = await run_cli(capsys, "plan", task_id)
        assert code == 0
        code, inbox, _ = await run_cli(capsys, "approvals", "--verbose")
        assert code == 0
        changed.write_text(shown.replace(SCRIPTED_PLAN.steps[0].goal, GOAL))
        monkeypatch.setenv("EDITOR", shlex.join(["cp", str(changed)]))
        changed.write_text(shown.replace("role: analysis", "role: cooking"))
        code, _, refused = await run_cli(capsys, "plan", task_id, "--edit")
        mended = get_plan_path(cli_settings.reports_folder, task_id)
        assert code == 2
        assert str(mended) in " ".join(refused.split()).replace(" ", "")
        mended.write_text(shown.replace(SCRIPTED_PLAN.steps[0].goal, GOAL))
        code, said, _ = await run_cli(capsys, "plan", task_id, "--file", str(mended), "--by", "Ada", "--json")
        assert (code, json.loads(said)["outcome"]) == (0, "approved")
        progress = await counter.get_task_handle().result()
        code, _, late = await run_cli(capsys, "plan", task_id, "--file", str(mended))
        assert code == 1
        assert " ".join(late.split()).startswith(
            f"refused: {task_id} has ended: done: approval was asked for the plan with 4 steps"
        )
        assert "by Ada" in late
        monkeypatch.setenv("EDITOR", shlex.join(["touch", str(tmp_path / "opened")]))
        code, _, late = await run_cli(capsys, "plan", task_id, "--edit")
        assert (code, "is not waiting for approval" in " ".join(late.split())) == (2, True)
        assert not (tmp_path / "opened").exists()
    assert "# Step tides may spend " in shown
    assert "# All steps together may spend 49,550 tokens. " in shown
    assert "# Agents may read pilot.md." in shown
    assert f"waystation plan {task_id} --edit" in inbox
    assert f"{SCRIPTED_PLAN.steps[0].title} (budget:" in inbox
    assert progress.phase is TaskPhase.DONE


SLOW = """sed -i s/Tides/Waves/ "$2"; touch "$1/opened"; while [ ! -e "$1/told" ]; do sleep 0.1; done"""


@pytest.mark.parametrize("signal", [APPROVE_BUDGET, DENY_BUDGET])
async def test_who_edits_a_plan_that_another_has_answered_meanwhile_hears_of_it_and_loses_nothing(
    signal: str,
    server: Client,
    tmp_path: Path,
    redactor: Redactor,
    cli_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("EDITOR", shlex.join(["sh", "-c", SLOW, "slow", str(tmp_path)]))

    async def opened() -> bool:
        return (tmp_path / "opened").exists()

    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        task_id = counter.get_task_handle().id
        editing = asyncio.create_task(run_cli(capsys, "plan", task_id, "--edit"))
        await wait_until(opened)
        await counter.get_task_handle().signal(signal, {"request_id": "plan-1", "by": "Ada"})
        await counter.get_task_handle().result()
        (tmp_path / "told").touch()
        code, _, said = await editing
    kept_in = get_plan_path(cli_settings.reports_folder, task_id)
    assert code == 1
    assert "by Ada" in " ".join(said.split())
    assert str(kept_in) in "".join(said.split())
    assert "Waves" in kept_in.read_text()


async def test_a_prompt_goes_on_by_itself_when_somebody_else_has_answered(
    server: Client,
    tmp_path: Path,
    redactor: Redactor,
    remote_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked = asyncio.Future[str]()

    async def nobody_types(question: str) -> str:
        asked.set_result(question)
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(follow, "can_ask", lambda: True)
    monkeypatch.setattr(follow, "prompt_line", nobody_types)
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        await Waystation.connect(remote_settings) as client,
    ):
        await counter.submit(under=REVIEWED)
        await waiting(counter)
        following = asyncio.create_task(follow.watch_task(client, counter.get_task_handle().id, follow.ask_at_terminal))
        async with asyncio.timeout(PROMPT_SECONDS):
            question = await asked
            await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": "plan-1", "by": "Ada"})
            view = await following
    assert question.startswith("Approve this plan?")
    assert view.phase is TaskPhase.DONE
    beginning = "Request plan-1 no longer needs an answer"
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith(beginning))
    assert "Ada" in line
