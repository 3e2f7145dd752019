"""Answers to calls that ask, from the command line: seen in the inbox, named, sent by the signals for money."""

import json
from functools import partial
from html import unescape
from pathlib import Path

import httpx2
import pytest
from temporalio.client import Client as TemporalClient

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, HERE, SITE
from tests.support.delegating_model import SUBMIT_FINDINGS_CALL, make_delegate_call, make_delegating_task_config
from tests.support.temporal_platform import run_all_workers, run_cli, wait_until
from tests.support.tool_approval_platform import (
    ONE_LETTER_SCRIPT,
    PRIVATE,
    make_send_letter_call,
    run_tool_approval_platform,
)
from waystation.cli.approvals import AnswerCommand, answer_request
from waystation.cli.render import format_message
from waystation.cli.render_requests import format_requests_by_task
from waystation.client import Client, OwnerClient
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.privacy.policy import VaultEntry
from waystation.privacy.ports import Redactor
from waystation.runtime.store_setup import build_cipher
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import TaskPhase, tenant_hash
from waystation.tasks.view import PendingApproval
from waystation.testing.doubles import PlainRedactor

ADA, PERSON, MAIL = "Ada Lovelace", "<PERSON_5101fccb76df>", "<EMAIL_0123456789ab>"


async def listed(client: Client) -> tuple[PendingApproval, ...]:
    """The inbox, once it has anything: the server lists by search attributes, which it indexes later."""
    found: list[PendingApproval] = []

    async def any_listed() -> bool:
        found[:] = await client.list_approvals()
        return bool(found)

    await wait_until(any_listed)
    return tuple(found)


async def approve(client: Client, amount: Amount | None, task_id: str, request_id: str | None) -> AnswerResult:
    return await client.approve(task_id, request_id=request_id, amount=amount, by="Ada")


async def test_a_call_is_approved_by_its_request_and_not_unseen_and_not_by_an_amount(
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    remote_settings: Settings,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        run_all_workers(server, at.parts),
        await Client.connect(remote_settings) as client,
    ):
        await at.counter.submit()
        await at.wait_for_pending_requests()
        task, send = at.task.id, partial(approve, client, None)
        (waiting,) = await listed(client)
        with pytest.raises(
            BadInput, match="harbours asks to call a tool: to approve the call, give this request's id to --request"
        ):
            await answer_request(client, AnswerCommand("approve", task, (), {}), send)
        told = capsys.readouterr().err
        named = AnswerCommand("approve", task, ("harbours-1",), {})
        with_money = await answer_request(client, named, partial(approve, client, Amount(tokens=900)))
        taken = await answer_request(client, named, send)
        progress = await at.task.result()
        seen = await client.get_task(task, details=True)
    assert waiting.approval.action is not None
    assert waiting.approval.action.text.startswith("Send this letter to the keeper?")
    assert "  | Send this letter to the keeper?" in told
    assert f"  waystation approve {task} --request harbours-1" in told
    assert with_money.outcome == "refused"
    assert (
        with_money.reason
        == "the request harbours-1 asks to call send_letter, not for budget: approve it without an amount"
    )
    assert taken.outcome == "approved"
    assert at.tool.sent == ["the keeper"]
    assert progress.phase is TaskPhase.DONE
    (sent_from,) = [one.sent_from for one in seen.approvals if one.request_id == "harbours-1"]
    assert sent_from is not None
    assert sent_from.identities


async def test_requests_of_tasks_that_set_no_search_attributes_are_listed(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, ONE_LETTER_SCRIPT) as at,
        # As a worker runs its tasks that found one of the attributes missing, or of another type. The server has the
        # one for open requests.
        run_all_workers(server, at.parts, search_attributes=False),
        await Client.connect(remote_settings) as client,
    ):
        await at.counter.submit()
        (request,) = await at.wait_for_pending_requests()
        (waiting,) = await listed(client)
        await client.deny(at.task.id, request_id=request.request_id, by="Ada")
        await at.task.result()
    assert (waiting.task_id, waiting.approval.request_id) == (at.task.id, request.request_id)


async def test_the_whole_call_of_a_subagent_is_read_in_its_transcript(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    scripts = {
        "harbours": [[make_delegate_call("beacons")], [SUBMIT_FINDINGS_CALL]],
        "harbours.1": [[make_send_letter_call("Brest " * 15)], [SUBMIT_FINDINGS_CALL]],
    }
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, scripts) as at,
        run_all_workers(server, at.parts),
        await Client.connect(remote_settings) as client,
    ):
        await at.counter.submit(under=make_delegating_task_config())
        (request,) = await at.wait_for_pending_requests()
        said = (await client.get_transcript(at.task.id, request.agent)).messages
        await client.deny(at.task.id, request_id=request.request_id, by="Ada", note="not now")
        await at.task.result()
    assert "Brest " * 15 in format_message(said[-1])
    assert "The person says: not now" in at.find_tool_results(step="harbours.1")[0].content
    assert at.tool.sent == []


async def test_people_see_the_recipient_that_a_call_sends_where_temporal_and_models_have_a_placeholder(
    server: TemporalClient, tmp_path: Path, cli_settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    redactor = PlainRedactor({PRIVATE: MAIL}, in_memory={ADA: PERSON})
    scripts = {"harbours": [[make_send_letter_call(ADA)], [SUBMIT_FINDINGS_CALL]]}
    async with (
        run_tool_approval_platform(server, tmp_path, redactor, scripts) as at,
        run_all_workers(server, at.parts),
        await OwnerClient.connect(cli_settings) as client,
        await Client.connect(cli_settings) as for_models,
    ):
        known = [
            VaultEntry(type="PERSON", placeholder=PERSON, fingerprint="5101fccb76df" + "0" * 52, text=ADA),
            VaultEntry(type="EMAIL", placeholder=MAIL, fingerprint="0123456789ab" + "0" * 52, text=PRIVATE),
        ]
        vault = at.parts.store.build_vault(build_cipher(cli_settings, "vault"))
        await vault.store_originals(tenant_hash(cli_settings.tenant), known)
        await at.counter.submit()
        (in_history,) = await at.wait_for_pending_requests()
        task = at.task.id
        (waiting,) = await listed(client)
        (for_a_model,) = await for_models.list_approvals()
        app = create_app(SITE, client, cli_settings.tenant, ServerDeps(ACCESS))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE) as asking:
            answers = [await asking.get(path, headers=BEARER) for path in ("/v1/approvals", f"/tasks/{task}")]
        _, as_json, _ = await run_cli(capsys, "approvals", "--json")
        await client.approve(task, request_id=in_history.request_id, by="Ada")
        await at.task.result()
    assert at.tool.sent == [ADA]
    question = f"Send this letter to {ADA}?\nWrite to {MAIL}."
    assert waiting.approval.action is not None
    # The agent was shown a placeholder of the address, and that is what the call sends.
    assert waiting.approval.action.text == question
    api, page = answers
    assert api.json()[0]["approval"]["action"]["text"] == question
    assert json.dumps(question) in as_json
    for shown in (unescape(page.text), format_requests_by_task((waiting,), utc_now(), 100)):
        assert f"Send this letter to {ADA}?" in shown
        assert f"Write to {MAIL}." in shown
    assert in_history.action is not None
    assert for_a_model.approval.action is not None
    assert in_history.action.text == for_a_model.approval.action.text == question.replace(ADA, PERSON)
