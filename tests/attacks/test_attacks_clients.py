"""The client over HTTP: what a token opens by it, and what nobody can ask for by saying so."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from pydantic import JsonValue

from tests.attacks.test_attacks_api_keys import NAME, NOON, create_keyed_app, keys, make_bearer_header, settings
from tests.support.finished_tasks import store_finished_task
from waystation import AsyncWaystation, __version__
from waystation.client import Client, connect_client
from waystation.client.remote import CALL_PATH_PREFIX, MESSAGE_PATH, REMOTE_METHODS, VERSION_HEADER, RemoteClient
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.client_permissions import CLIENT_PERMISSIONS, ClientPermission
from waystation.kernel.errors import BadInput, UnknownTask, Unreachable, WaystationError
from waystation.plugins.web.principals import ApiKeyStore, Principal
from waystation.tasks.approvals import AnswerInput, ApproveInput
from waystation.tasks.signals import MESSAGE, SIGNALS, TaskMessageInput, TaskSignalDefinition
from waystation.tasks.task import ForkOrigin, TaskRequest, tenant_hash
from waystation.tasks.view import TaskFilter

__all__ = ["keys", "settings"]
NOTE = SourceDocument(name="note.md", text="The bar is two fathoms deep.")
OF_A_TASK = [name for name, call in REMOTE_METHODS.items() if "task_id" in call.parameters and name != "list_events"]
NEEDED: dict[str, JsonValue] = {
    "agent": "research-1",
    "words": "Go on.",
    "name": "note.md",
    "request_ids": ["research-1-1"],
    "fork": {"step": "research-1", "request_id": "again"},
    "edit": {"action": "compact", "agent": "research-1"},
    "loaded": {"documents": []},
    "plan": {"steps": [{"id": "a", "role": "research", "title": "A", "goal": "A", "needs": []}]},
}
"""What calls about a task take beside it."""


def fields(name: str, task: str) -> dict[str, JsonValue]:
    taken = REMOTE_METHODS[name].parameters
    return {"task_id": task, **{field: value for field, value in NEEDED.items() if field in taken}}


@asynccontextmanager
async def asking(settings: Settings, keys: ApiKeyStore) -> AsyncGenerator[httpx2.AsyncClient]:
    async with create_keyed_app(settings, keys) as app:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url=f"https://{NAME}", headers={VERSION_HEADER: __version__}
        ) as client:
            yield client


@asynccontextmanager
async def remote(
    settings: Settings, keys: ApiKeyStore, role: ClientPermission, tenant: str
) -> AsyncGenerator[RemoteClient]:
    _, key = keys.create_key("Ada", tenant, role, NOON)
    async with (
        create_keyed_app(settings, keys) as app,
        RemoteClient(f"https://{NAME}", key, httpx2.ASGITransport(app=app)) as client,
    ):
        yield client


def test_whatever_the_client_can_is_asked_for_over_http_or_says_why_not() -> None:
    own = {name for name, one in vars(Client).items() if not name.startswith("_") and callable(one)}
    of_other_methods = {"aclose", "watch", "update_documents", "approve", "deny", "approve_many", "deny_many"}
    for_own_use = {
        "deliver",
        "send",
        "get_schedule_client",
        "build_draft",
        "redact_file_previews",
        "restore_placeholders",
    }
    for_own_use |= {"create_report_link", "list_report_links", "open_report_link", "revoke_report_link"}
    for_own_use |= {"get_task_request", "forget_session", "build_placeholder_client", "get_redacted_document_text"}
    for_own_use |= {"list_partial_replies", "watch_task"}
    assert own - REMOTE_METHODS.keys() == of_other_methods | for_own_use
    assert {call.role for call in REMOTE_METHODS.values()} == set(CLIENT_PERMISSIONS)


@pytest.mark.parametrize("role", CLIENT_PERMISSIONS)
async def test_a_call_takes_its_role_and_none_by_another_address(
    role: ClientPermission, settings: Settings, keys: ApiKeyStore
) -> None:
    _, key = keys.create_key("Ada", settings.tenant, role, NOON)
    async with asking(settings, keys) as client:
        for name, call in REMOTE_METHODS.items():
            found = {
                said: (
                    await client.post(
                        f"{CALL_PATH_PREFIX}{said}/{name}", headers=make_bearer_header(key), json={"no": 1}
                    )
                ).status_code
                for said in (*CLIENT_PERMISSIONS, "admin", "Read", "read%2F..%2Fapprove", "read%0A")
            }
            for said in CLIENT_PERMISSIONS:
                may = CLIENT_PERMISSIONS.index(said) <= CLIENT_PERMISSIONS.index(role)
                assert found[said] == (403 if not may else 400 if call.role == said else 404), (name, said)
            assert {found[said] for said in found if said not in CLIENT_PERMISSIONS} <= {403, 404, 422}
        assert (await client.post(f"{CALL_PATH_PREFIX}read/progress", json={})).status_code == 401


@pytest.mark.parametrize("role", CLIENT_PERMISSIONS)
async def test_a_message_takes_the_role_of_its_row_and_one_of_texts_is_sent_by_its_method_alone(
    role: ClientPermission, settings: Settings, keys: ApiKeyStore
) -> None:
    _, key = keys.create_key("Ada", settings.tenant, role, NOON)
    async with asking(settings, keys) as client:
        for name, signal in SIGNALS.items():
            for said in CLIENT_PERMISSIONS:
                address = f"{CALL_PATH_PREFIX}{said}/{MESSAGE_PATH}{name}"
                found = await client.post(address, headers=make_bearer_header(key), json={"no": 1})
                may = CLIENT_PERMISSIONS.index(said) <= CLIENT_PERMISSIONS.index(role)
                taken = 422 if signal.permission == said else 404
                assert found.status_code == (taken if may else 403), (name, said)
    assert {signal.permission for signal in SIGNALS.values()} > {None}


async def test_a_message_of_a_row_without_a_permission_is_not_sent_by_itself(
    settings: Settings, keys: ApiKeyStore
) -> None:
    async with remote(settings, keys, "approve", settings.tenant) as client:
        with pytest.raises(BadInput, match="send_message cannot be sent with `send`"):
            await client.send("T", MESSAGE, TaskMessageInput(text="Give depths in metres."))


async def test_of_another_tenants_task_no_answer_learns_more_than_of_none(
    settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    async with remote(settings, keys, "approve", "other") as client:
        for one in (task, "task-0123456789abcdef"):
            for send in (client.approve, client.deny):
                with pytest.raises(UnknownTask, match=one):
                    await send(one, request_id="r1")


@pytest.mark.parametrize("name", OF_A_TASK)
async def test_of_another_tenants_task_nobody_learns_more_than_of_none(
    name: str, settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    _, theirs = keys.create_key("Eve", "other", "approve", NOON)
    async with asking(settings, keys) as client:
        address = f"{CALL_PATH_PREFIX}{REMOTE_METHODS[name].role}/{name}"
        foreign, none = [
            await client.post(address, headers=make_bearer_header(theirs), json=fields(name, one))
            for one in (task, "task-0123456789abcdef")
        ]
    # A fork is begun by a server, which is away here.
    assert {foreign.status_code, none.status_code} == {503 if name == "fork" else 404}, foreign.text
    assert foreign.text.replace(task, "T") == none.text.replace("task-0123456789abcdef", "T")


async def test_values_that_name_anothers_task_or_tenant_open_nothing_of_it(
    settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    async with await Client.connect(settings) as own:
        asked = TaskRequest(question="How deep?", tenant=settings.tenant, request_id="one")
        row = await own.prepare_task(asked)
    async with remote(settings, keys, "approve", "other") as client:
        for details in (False, True):
            with pytest.raises(UnknownTask):
                await client.get_task(task, details=details)
        prepared = await client.prepare_task(asked)
        assert (prepared.request.tenant, prepared.ref.tenant) == ("other", tenant_hash("other"))
        assert prepared.ref.task_id != row.ref.task_id
        assert await client.list_tasks() == ()


async def test_a_request_builds_on_no_task_of_anybody(settings: Settings, keys: ApiKeyStore) -> None:
    task = await store_finished_task(settings)
    asked = TaskRequest(question="How deep?", request_id="one")
    async with remote(settings, keys, "submit", settings.tenant) as client:
        for built in (asked.replace(since=task), asked.replace(forked_from=ForkOrigin(task_id=task, step="writing"))):
            with pytest.raises(BadInput, match="a request cannot set the fields `forked_from` and `since`"):
                await client.prepare_task(built)


async def test_terms_that_a_client_made_up_are_not_those_of_a_task(settings: Settings, keys: ApiKeyStore) -> None:
    async with remote(settings, keys, "submit", settings.tenant) as client:
        row = await client.prepare_task(
            TaskRequest(question="How deep?", request_id="one", budget=Limit(tokens=90_000))
        )
        richer = row.replace(config=row.config.replace(budget=Limit(tokens=10**9)))
        with pytest.raises(BadInput, match="the configuration of this task has changed since it was shown"):
            await client.submit(richer, [NOTE])
        with pytest.raises(Unreachable, match="Temporal"):
            await client.submit(row, [NOTE])


async def test_a_proved_name_is_the_servers_to_say(
    settings: Settings, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = await store_finished_task(settings)
    _, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    taken = list[AnswerInput]()

    async def send(
        client: Client, task_id: str, signal: TaskSignalDefinition[ApproveInput], message: AnswerInput
    ) -> object:
        del client, task_id, signal
        taken.append(message)
        raise BadInput("seen")

    monkeypatch.setattr(Client, "send", send)
    async with asking(settings, keys) as client:
        for proof in ("", "API key 7"):
            await client.post(
                f"{CALL_PATH_PREFIX}approve/{MESSAGE_PATH}approve_budget",
                headers=make_bearer_header(key),
                json={"task_id": task, "message": {"by": "Grace", "verified": proof}},
            )
    assert [one.by for one in taken] == ["Ada", "Ada"]
    assert all(one.verified.startswith("API key") and one.verified != "API key 7" for one in taken)


def test_who_only_claims_a_name_has_no_proof_of_it() -> None:
    claimed = ApproveInput(by="Grace", verified="API key 7")
    assert claimed.sign(Principal(name="", tenant="").resolve_signature(claimed.by)) == ApproveInput(by="Grace")


@pytest.mark.parametrize(
    ("address", "sent", "status", "said"),
    [
        ("read/list_tasks", {"maximum": 10**9}, 400, "maximum: give a number from 1 to 5,000"),
        ("read/list_tasks", {"maximum": -1}, 400, "maximum: give a number from 1 to 5,000"),
        ("read/list_events", {"after": -1, "limit": 5}, 400, "after: give a number from 0 to"),
        ("read/list_sessions", {"first": 10**30}, 400, "first: give a number from 0 to"),
        ("read/resolve_task_id", {}, 400, "resolve_task_id: missing a required argument"),
        ("read/resolve_task_id", {"prefix": ""}, 400, "prefix: give one line"),
        ("read/get_bill", {"task_id": "a" * 1_000}, 400, "task_id: give one line of at most 200 characters"),
        (
            "approve/set_session_limit",
            {"session": "S", "limit": {"usd": 5}},
            422,
            "usd: there is no such field",
        ),
        ("approve/set_session_limit", {"session": "S", "limit": {"tokens": -5}}, 400, "give an amount from 0"),
        ("approve/set_session_limit", {"session": "x\ny", "limit": {"tokens": 5}}, 400, "session: give one line"),
        (
            "approve/messages/deny_budget",
            {"task_id": "T", "message": {"request_id": "r", "also": ["r"] * 2_000}},
            422,
            "1000",
        ),
        ("approve/messages/deny_budget", {"task_id": "", "message": {}}, 400, "task_id: give one line"),
        ("approve/messages/deny_budget", {"task_id": "T", "message": []}, 422, "detail"),
        (
            "approve/messages/nothing",
            {"task_id": "T", "message": {}},
            404,
            "there is no client message nothing for the role approve",
        ),
        ("read/audit_compactions", {"task_id": "T", "memory": {}}, 400, "has no parameter memory"),
        ("submit/submit", {"start_timeout": 9}, 400, "has no parameter start_timeout"),
        ("read/nothing", {}, 404, "there is no client method nothing for the role read"),
        ("read/get_schedule_client", {}, 404, "there is no client method get_schedule_client for the role read"),
        ("read/list_tasks", {"maximum": "many"}, 422, '"detail":"it should be a whole number'),
        ("read/list_tasks", [], 422, "body"),
    ],
)
async def test_what_cannot_be_asked_for_is_refused_with_the_reason(
    address: str, sent: JsonValue, status: int, said: str, settings: Settings, keys: ApiKeyStore
) -> None:
    _, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    async with asking(settings, keys) as client:
        answer = await client.post(f"{CALL_PATH_PREFIX}{address}", headers=make_bearer_header(key), json=sent)
        older = await client.post(
            f"{CALL_PATH_PREFIX}{address}", headers={**make_bearer_header(key), VERSION_HEADER: "0.1.9"}, json={}
        )
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
    assert older.status_code == 409
    assert f"this server has Waystation {__version__}, and the client has 0.1.9: install" in older.text


async def test_only_what_is_handed_in_is_large(settings: Settings, keys: ApiKeyStore) -> None:
    _, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    large = {"task_id": "T", "words": "x" * 1_100_000}
    async with asking(settings, keys) as client:
        found = [
            (await client.post(f"{CALL_PATH_PREFIX}{address}", headers=make_bearer_header(key), json=large)).status_code
            for address in ("read/get_task", "approve/messages/approve_budget", "submit/send_message")
        ]
        bounded = await client.post(
            f"{CALL_PATH_PREFIX}read/progress", headers=make_bearer_header(key), content=_in_parts()
        )
    assert found == [413, 413, 404]
    assert bounded.status_code == 413
    # Nothing is submitted here, so larger documents are not mentioned.
    assert bounded.json()["detail"] == "this request may have at most 1,000,000 bytes"


async def _in_parts() -> AsyncGenerator[bytes]:
    for _ in range(12):
        yield b"x" * 100_000


async def test_what_could_be_any_task_is_none_though_there_is_only_one(settings: Settings, keys: ApiKeyStore) -> None:
    task = await store_finished_task(settings)
    async with remote(settings, keys, "submit", settings.tenant) as client:
        assert await client.resolve_task_id(task[:6]) == task
        for beginning in ("t", "task", "task-"):
            with pytest.raises(
                BadInput,
                match=f"'{beginning}' is the beginning of every task id: give more of the id, like {task[:9]}$",
            ):
                await client.resolve_task_id(beginning)


async def test_a_view_is_the_same_here_and_there(settings: Settings, keys: ApiKeyStore) -> None:
    task = await store_finished_task(settings)
    async with await Client.connect(settings) as own, remote(settings, keys, "read", settings.tenant) as client:
        for details in (False, True):
            view = await own.get_last_known_task(task, details=details)
            assert await client.get_last_known_task(task, details=details) == view


def test_no_proxy_reads_the_token_on_its_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    trusted = list[bool]()

    class Recording(httpx2.AsyncClient):
        def __init__(self, *, trust_env: bool = True, **given: Any) -> None:
            trusted.append(trust_env)
            super().__init__(trust_env=trust_env, **given)

    monkeypatch.setattr("waystation.client.remote.httpx2.AsyncClient", Recording)
    for address in ("http://127.0.0.1:8520", "http://localhost:1", "https://a.example"):
        RemoteClient(address, "k")
    assert trusted == [False, False, True]


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (httpx2.Response(502, html="<h1>Bad Gateway</h1>"), Unreachable, "(502 Bad Gateway)"),
        (httpx2.Response(200, html="<h1>Log in</h1>"), Unreachable, "(200 OK)"),
        (httpx2.Response(302, headers={"location": "https://evil.example/"}), Unreachable, "(302 Found)"),
        (httpx2.Response(200, json=[1]), WaystationError, "in a form that this version does not know"),
        (httpx2.Response(500, json={"detail": "it broke"}), WaystationError, "it broke"),
        (httpx2.Response(404, json={"detail": "\x1b]0;owned\x07gone"}), UnknownTask, "gone"),
        (httpx2.Response(404, json={}), UnknownTask, "status 404 without an explanation"),
        (httpx2.Response(401, json={"detail": "no"}), BadInput, "rejects your token"),
    ],
)
async def test_answers_of_anybody_in_between_are_told_from_the_servers(
    answer: httpx2.Response, kind: type[WaystationError], said: str
) -> None:
    asked = list[httpx2.Request]()

    def answering(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return answer

    async with RemoteClient("https://a.example", "k", httpx2.MockTransport(answering)) as client:
        with pytest.raises(kind) as told:
            await client.list_tasks(TaskFilter())
    assert said in str(told.value)
    assert "\x1b" not in str(told.value)
    assert [one.url.host for one in asked] == ["a.example"]


ODD: Any = 5
ODD_TEXT: Any = "many"
ODDITIES: tuple[tuple[Callable[[AsyncWaystation], Awaitable[object]], str], ...] = (
    (lambda ws: ws.task(ODD), "does not name a task"),
    (lambda ws: ws.approve(ODD), "does not name a task"),
    (lambda ws: ws.tasks(maximum=ODD_TEXT), "maximum cannot be used: it should be a whole number"),
    (lambda ws: ws.tasks(phases=ODD), "unknown phase in 5"),
    (lambda ws: ws.tasks(text=ODD), "text: it should be text"),
    (lambda ws: ws.submit(ODD), "question: it should be text"),
    (lambda ws: ws.submit("q", docs=ODD), "docs must be the path"),
    (lambda ws: ws.submit("q", docs=__file__, accept=ODD), "accept: it should be a list"),
    (lambda ws: ws.submit("q", docs=__file__, servers=ODD), "servers: it should be a list"),
    (lambda ws: ws.submit("q", docs=__file__, mode=ODD), "mode: it should be 'hard', 'soft' or 'approval'"),
)


@pytest.mark.parametrize(("asking", "said"), ODDITIES)
async def test_what_is_of_another_kind_in_a_notebook_is_refused_in_words(
    asking: Callable[[AsyncWaystation], Awaitable[object]], said: str
) -> None:
    async with AsyncWaystation("http://127.0.0.1:9", "k") as ws:
        with pytest.raises(BadInput) as told:
            await asking(ws)
    assert said in str(told.value)


async def test_an_answer_without_an_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = list[int]()

    class Endless(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncGenerator[bytes]:
            while True:
                sent.append(1_000)
                yield b" " * 1_000

    monkeypatch.setattr("waystation.client.remote.MAX_ANSWER_BYTES", 1_000_000)
    answer = httpx2.Response(200, headers={"content-type": "application/json"}, stream=Endless())
    async with RemoteClient("https://a.example", "k", httpx2.MockTransport(lambda _: answer)) as client:
        with pytest.raises(WaystationError, match="more than 1 MB"):
            await client.list_tasks(TaskFilter())
    assert sum(sent) == 1_001_000


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://waystation.example.org", "in plain text: use https://waystation.example.org"),
        ("ftp://a.example", "is not the address of a server"),
        ("https://", "is not the address of a server"),
        ("https://a.example:port", "is not the address of a server"),
        ("https://me:secret@a.example", "is not the address of a server"),
        ("a.example", "is not the address of a server"),
        ("https://a.example/prefix", "is not the address of a server"),
        ("https://a..b", "is not the address of a server"),
        ("https://exa mple.org", "is not the address of a server"),
        ("https://a.example:0", "is not the address of a server"),
        ("https://a.example", "WAYSTATION_TOKEN is missing"),
        ("https://a.example/?token=a%0Ab", "the token for https://a.example is not valid"),
        ("https://a.example/?token=%C3%A4", "the token for https://a.example is not valid"),
    ],
)
async def test_a_token_is_sent_to_no_address_that_would_give_it_away(
    address: str, said: str, settings: Settings
) -> None:
    with pytest.raises(BadInput) as told:
        await connect_client(settings.replace(server=address))
    assert said in str(told.value)
    assert "secret" not in str(told.value)
