"""Answers from the command line to a task with two open requests, and to one that somebody else was quicker with."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.task_model import ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import run_cli, run_platform, wait_for_both_requests
from waystation.cli.approvals import AnswerCommand, answer_request
from waystation.cli.main import run
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.tasks.signals import AnswerResult


async def deny(client: Client, by: str, task_id: str, request_id: str | None) -> AnswerResult:
    return await client.deny(task_id, request_id=request_id, by=by)


async def approve(client: Client, by: str, task_id: str, request_id: str | None) -> AnswerResult:
    return await client.approve(task_id, request_id=request_id, amount=Amount(tokens=9_000), by=by)


async def test_of_two_open_requests_each_gets_its_command_and_nothing_is_sent(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    remote_settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        await Client.connect(remote_settings) as client,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        typed = AnswerCommand("approve", task, (), {"--add": "9k"})
        with pytest.raises(
            BadInput, match=f"{task} has 2 open requests: run one of .*`waystation approve {task} --all"
        ):
            await answer_request(client, typed, partial(approve, client, "Ada"))
        assert (await client.get_task(task)).rejected_messages == ()
    told = capsys.readouterr().err.splitlines()
    assert sorted(told) == [
        f"waystation approve {task} --request harbours-1 --add 9k",
        f"waystation approve {task} --request tides-1 --add 9k",
    ]


async def test_whoever_answers_second_is_told_who_was_first_when_and_what(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        await Client.connect(remote_settings) as client,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        first = await answer_request(
            client, AnswerCommand("deny", task, ("tides-1",), {}), partial(deny, client, "Ada")
        )
        second = await answer_request(
            client, AnswerCommand("approve", task, ("tides-1",), {}), partial(approve, client, "Grace")
        )
        # One request is open now: it is the one that is meant.
        third = await answer_request(client, AnswerCommand("deny", task, (), {}), partial(deny, client, "Grace"))
        (answered,) = [a for a in (await client.get_task(task)).approvals if a.request_id == "tides-1"]
    assert (first.outcome, second.outcome, third.outcome) == ("denied", "refused", "denied")
    assert answered.answered_at is not None
    assert "denied by Ada (name not verified; sent from " in second.reason
    assert second.reason.endswith(f" ({answered.answered_at:%Y-%m-%d %H:%M %Z})")


@pytest.mark.usefixtures("cli_settings")
async def test_all_that_ask_for_money_are_answered_at_once_and_each_is_told(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    ceiling = Limit(
        tokens=(make_tight_budget_config().budget.tokens or 0) + 1_500
    )  # what one leaves of it is too little for the other
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config().replace(ceiling=ceiling))
        asking = await wait_for_both_requests(counter.get_task_handle())
        task, (first, second) = asking.task_id, [approval.request_id for approval in asking.approvals]
        first_agent, second_agent = (approval.agent for approval in asking.approvals)
        code, out, told = await run_cli(capsys, "approve", task, "--all", "--add", "1k", "--by", "Ada", "--json")
        denied = await asyncio.to_thread(run, ["deny", task, "--request", first, "--request", second])
    assert (code, denied) == (1, 1), "one was refused for the ceiling, then one was answered before"
    answers = [(one["request_id"], one["outcome"]) for one in json.loads(out)]
    assert answers == [(first, "approved"), (second, "refused")]
    said = told.splitlines()
    assert said[0] == f"{task}: approving 2 requests with 1,000 tokens each, 2,000 tokens in all"
    assert said[1] == f"{first} ({first_agent}): approved"
    assert said[2].startswith(f"{second} ({second_agent}): refused: the grant would raise the task's budget to ")
    assert said[2].endswith("which leaves 500 tokens for grants")
    lines = capsys.readouterr().err.splitlines()
    assert (lines[0], lines[2]) == (f"{task}: denying 2 requests", f"{second} ({second_agent}): denied")
    assert lines[1].startswith(f"{first}: refused: the request {first} was already approved: ")


@pytest.mark.usefixtures("cli_settings")
async def test_all_that_are_granted_are_granted_in_one_moment_so_that_none_goes_on_with_what_another_was_given(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        asking = await wait_for_both_requests(counter.get_task_handle())
        task, named = asking.task_id, [approval.request_id for approval in asking.approvals]
        before = asking.budget.limit.tokens or 0
        code, out, told = await run_cli(capsys, "approve", task, "--all", "--add", "90k", "--by", "Ada", "--json")
        progress = await counter.get_task_handle().result()
        history = await counter.get_task_handle().fetch_history()
    sent = [
        event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name
        for event in history.events
    ]
    assert (code, sent.count("approve_budget")) == (0, 1)
    assert [(one["request_id"], one["outcome"]) for one in json.loads(out)] == [(one, "approved") for one in named]
    assert told.splitlines()[1:] == [f"{one.request_id} ({one.agent}): approved" for one in asking.approvals]
    assert {one.request_id: one.granted for one in progress.approvals} == dict.fromkeys(named, Amount(tokens=90_000))
    assert progress.budget.limit.tokens == before + 180_000


@pytest.mark.usefixtures("cli_settings")
async def test_all_that_are_denied_are_denied_in_one_moment_so_that_none_goes_on_with_what_another_leaves(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        asking = await wait_for_both_requests(counter.get_task_handle())
        task, named = asking.task_id, [approval.request_id for approval in asking.approvals]
        code, out, told = await run_cli(capsys, "deny", task, "--all", "--note", "enough", "--by", "Ada", "--json")
        progress = await counter.get_task_handle().result()
        history = await counter.get_task_handle().fetch_history()
        again = await asyncio.to_thread(run, ["deny", task, "--request", named[0], "--request", "nobody"])
    sent = [
        event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name
        for event in history.events
    ]
    assert sent.count("deny_budget") == 1
    assert (code, again) == (0, 2)
    assert [(one["request_id"], one["outcome"], one["reason"]) for one in json.loads(out)] == [
        (request_id, "denied", "enough") for request_id in named
    ]
    assert told.splitlines() == [
        f"{task}: denying 2 requests",
        *(f"{one.request_id} ({one.agent}): denied" for one in asking.approvals),
    ]
    assert {one.request_id: (one.decision, one.by) for one in progress.approvals} == dict.fromkeys(
        named, ("denied", "Ada")
    )


async def test_a_grant_that_is_too_small_is_said_to_be_asked_for_again(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    remote_settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        await Client.connect(remote_settings) as client,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        little = AnswerCommand("approve", task, ("tides-1",), {}, amount=Amount(tokens=1))

        async def grant(task_id: str, request_id: str | None) -> AnswerResult:
            return await client.approve(task_id, request_id=request_id, amount=little.amount)

        await answer_request(client, little, grant)
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "tides-1 (tides): approved"
    assert told[1].startswith("1 tokens may not be enough: the next call of tides may need ")
