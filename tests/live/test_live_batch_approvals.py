"""Several answers in one confirmation, and answers that nobody but an approver may give, over HTTP."""

import asyncio
from pathlib import Path

from temporalio.client import Client as TemporalClient

from tests.attacks.test_attacks_api_keys import NAME, NOON, make_bearer_header
from tests.attacks.test_attacks_api_keys import open_keyed_client as served_elsewhere
from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, COOKIES, HERE, open_site_client
from tests.live.test_live_payload_encryption import WITH_KEY, make_client_with_keys
from tests.support.task_model import ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import run_platform, wait_for_both_requests
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.plugins.web.access import AccessPolicy, BrowserSession
from waystation.plugins.web.principals import ApiKeyStore
from waystation.privacy.ports import Redactor
from waystation.workflows.task import TaskWorkflow

OURS = {**COOKIES, "Origin": HERE}


class Held:
    """Nobody goes on with what was granted: what an agent leaves would answer the other's request."""

    def __init__(self) -> None:
        self._holds, self._go_on = False, asyncio.Event()

    async def __call__(self, call: ModelCall) -> None:
        del call
        if self._holds:
            await self._go_on.wait()

    def hold(self) -> None:
        """From here on."""
        self._holds = True

    def let_go(self) -> None:
        """All of them."""
        self._go_on.set()


async def test_several_requests_are_answered_by_one_confirmation_and_each_outcome_is_told(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    held = Held()
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=held)) as counter,
        open_site_client(remote_settings) as asking,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        held.hold()
        chosen = [f"{task}/{request}" for request in ("tides-1", "harbours-1", "tides-1")]
        inbox = await asking.get("/inbox", headers=COOKIES)
        both = await asking.get("/answers", headers=COOKIES, params={"request": [*chosen, f"{task}/gone-9"]})
        forged = await asking.post("/answers/approve", headers=OURS, data={"mark": "x", "request": chosen})
        # Another person is quicker with one of them.
        async with await Client.connect(remote_settings) as other:
            first = await other.approve(task, request_id="tides-1", by="Grace")
        answer = {"mark": ACCESS.csrf_token, "by": "Ada", "request": chosen}
        done = await asking.post("/answers/approve", headers=OURS, data=answer)
        late = await asking.get("/answers", headers=COOKIES, params={"request": chosen})
        none = await asking.post(
            "/answers/deny", headers=OURS, data={"mark": ACCESS.csrf_token, "request": "task-00000000/q"}
        )
        asked = {
            one.request_id: one for one in (await counter.get_task_handle().query(TaskWorkflow.progress)).approvals
        }
        held.let_go()
    assert inbox.text.count('type="checkbox" name="request"') == 2
    assert both.text.count('name="request"') == 2
    assert "1 selected request is no longer open" in both.text
    assert "Approve all 2" in both.text
    assert (forged.status_code, first.outcome, done.status_code) == (403, "approved", 200)
    assert ("tides-1 was already approved" in done.text, done.text.count(">approved</span>")) == (True, 1)
    assert (asked["harbours-1"].decision, asked["harbours-1"].by) == ("approved", "Ada")
    assert (asked["tides-1"].decision, asked["tides-1"].by) == ("approved", "Grace")
    assert "None of the selected requests is open" in late.text
    assert (none.status_code, "has an id that starts with" in none.text) == (200, True)


async def test_several_requests_of_a_task_are_denied_in_one_moment(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_site_client(remote_settings) as asking,
    ):
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        chosen = [f"{task}/{request}" for request in ("tides-1", "harbours-1")]
        answer = {"mark": ACCESS.csrf_token, "note": "enough", "request": chosen}
        done = await asking.post("/answers/deny", headers=OURS, data=answer)
        asked = (await counter.get_task_handle().query(TaskWorkflow.progress)).approvals
    assert done.text.count(">denied</span>") == 2
    assert {(one.decision, one.note) for one in asked} == {("denied", "enough")}
    assert len({one.answered_at for one in asked}) == 1


async def test_where_approvers_are_named_nobody_else_answers_however_they_come(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    held, named = Held(), WITH_KEY.replace(approvers=("Ada Lovelace",))
    mine = remote_settings.replace(key=WITH_KEY.key)
    keys = ApiKeyStore(tmp_path / "api-keys.json")
    (_, ada), (_, grace) = (keys.create_key(name, mine.tenant, "approve", NOON) for name in ("Ada Lovelace", "Grace"))
    async with run_platform(
        await make_client_with_keys(server, WITH_KEY),
        tmp_path,
        redactor,
        ScriptedTaskModel(before=held),
        settings=named,
    ) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = (await wait_for_both_requests(counter.get_task_handle())).task_id
        held.hold()
        async with (
            await Client.connect(mine) as commands,
            open_site_client(mine) as here,
            served_elsewhere(mine, keys) as asking,
        ):
            plain = await commands.approve(task, request_id="tides-1", by="Ada Lovelace")
            path, body = f"/v1/tasks/{task}/approve", {"request_id": "tides-1", "by": "Ada Lovelace"}
            printed = await here.post(path, headers=BEARER, json=body)
            other = await asking.post(path, headers=make_bearer_header(grace), json=body)
            first = await asking.post(path, headers=make_bearer_header(ada), json={"request_id": "tides-1"})
            second = await asking.post(
                "/answers/deny",
                headers={"Cookie": signed_in(ada), "Origin": f"https://{NAME}"},
                data={"mark": ELSEWHERE.csrf_token, "request": f"{task}/harbours-1"},
            )

        asked = {
            one.request_id: one for one in (await counter.get_task_handle().query(TaskWorkflow.progress)).approvals
        }
        held.let_go()
    assert (plain.outcome, "requires a verified name" in plain.reason) == ("refused", True)
    assert (printed.status_code, "waystation keys make" in printed.json()["detail"]) == (409, True)
    assert (other.status_code, "Grace is verified but is not one of the approvers" in other.json()["detail"]) == (
        409,
        True,
    )
    assert (first.status_code, second.text.count(">denied</span>")) == (200, 1)
    assert {one.by for one in asked.values()} >= {"Ada Lovelace"}
    assert asked["tides-1"].verified.startswith("API key")
    assert asked["harbours-1"].verified.startswith("API key")


ELSEWHERE = AccessPolicy(token="t" * 43, port=8520, names=(NAME,))


def signed_in(key: str) -> str:
    """What a browser keeps of the key."""
    return f"waystation={ELSEWHERE.make_cookie(BrowserSession(key.split('_')[1], '1'))}"
