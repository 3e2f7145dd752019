"""API keys and tokens of an OpenID provider: who is let in, as whom, and what is refused."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from tests.attacks.test_attacks_web_pages import NO_SERVER, SITE
from tests.support.finished_tasks import store_finished_task
from waystation.cli.main import run
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.context.compaction import ContextEdit
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.client_permissions import ClientPermission
from waystation.plugins.web import principals
from waystation.plugins.web.access import (
    REQUESTS_A_SECOND,
    REQUESTS_AT_ONCE,
    AccessPolicy,
    RateLimiter,
    get_required_role,
)
from waystation.plugins.web.app import ServerDeps, create_app
from waystation.plugins.web.principals import (
    ApiKey,
    ApiKeyStore,
    Authenticator,
    OpenIdConfig,
    OpenIdTokenVerifier,
    Principal,
)
from waystation.tasks.approvals import ApprovalContext, ApproveInput, VerifiedName, approve
from waystation.tasks.details import format_request_and_answer
from waystation.tasks.task import ApprovalRequest
from waystation.tasks.view import ApprovalView

NAME = "waystation.example.org"
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)
ISSUER, AUDIENCE = "https://id.example.org", "waystation"
MINE = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@pytest.fixture
def keys(settings: Settings) -> ApiKeyStore:
    settings.home.mkdir()
    return ApiKeyStore(settings.home / "api-keys.json")


@asynccontextmanager
async def create_keyed_app(settings: Settings, keys: ApiKeyStore) -> AsyncGenerator[Any]:
    """All that is served, as it is asked from elsewhere."""
    access = AccessPolicy(token="t" * 43, port=8520, names=(NAME,))
    async with AsyncExitStack() as opened:

        async def open_tenant(tenant: str) -> Client:
            return await opened.enter_async_context(await Client.connect(settings.replace(tenant=tenant)))

        client = await open_tenant(settings.tenant)
        yield create_app(SITE, client, settings.tenant, ServerDeps(access, Authenticator(keys), open_tenant))


@asynccontextmanager
async def open_keyed_client(settings: Settings, keys: ApiKeyStore) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client that asks so."""
    async with create_keyed_app(settings, keys) as app:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=f"https://{NAME}") as asking:
            yield asking


def make_bearer_header(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("role", "allowed"), [("read", [200, 403, 403]), ("submit", [200, 200, 403]), ("approve", [200, 200, 503])]
)
async def test_a_key_may_what_its_role_says(
    role: ClientPermission, allowed: list[int], settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    _, key = keys.create_key("Ada", settings.tenant, role, NOON)
    async with open_keyed_client(settings, keys) as asking:
        answers = [
            await asking.get("/v1/tasks", headers=make_bearer_header(key)),
            await asking.post(f"/v1/tasks/{task}/cancel", headers=make_bearer_header(key)),
            await asking.put("/v1/sessions/default/limit", headers=make_bearer_header(key), json={"budget": "9k"}),
        ]
    assert [answer.status_code for answer in answers] == allowed


async def test_no_other_spelling_of_an_address_takes_less_of_a_role(settings: Settings, keys: ApiKeyStore) -> None:
    task = await store_finished_task(settings)
    _, submits = keys.create_key("Ada", settings.tenant, "submit", NOON)
    _, elsewhere = keys.create_key("Eve", "other", "approve", NOON)
    ends = ("%0A", "%0D", "%0D%0A", "/", "%2F", "%20", "%00", ";", "?x=1")
    async with open_keyed_client(settings, keys) as asking:
        limits = [
            await asking.put(
                f"/v1/sessions/default/limit{end}", headers=make_bearer_header(submits), json={"budget": "9k"}
            )
            for end in ends
        ]
        answers = [
            await asking.post(
                f"{before}/tasks/{task}/{answer}{end}", headers=make_bearer_header(submits), json={"request_id": "q"}
            )
            for before in ("/v1", "")
            for answer in ("approve", "deny", "deliver")
            for end in ends
        ]
        assistants = [await asking.post(f"/mcp{end}", headers=make_bearer_header(elsewhere), json={}) for end in ends]
    assert {answer.status_code for answer in (*limits, *answers)} <= {307, 403, 404, 405}
    assert {answer.status_code for answer in assistants} <= {307, 403, 404, 405}


async def test_a_key_opens_its_own_tenant_and_another_ones_task_is_as_unknown_as_none(
    settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    (_, mine), (_, theirs) = (keys.create_key("Ada", tenant, "approve", NOON) for tenant in (settings.tenant, "other"))
    async with open_keyed_client(settings, keys) as asking:
        own = await asking.get(f"/v1/tasks/{task}", headers=make_bearer_header(mine))
        foreign = await asking.get(f"/v1/tasks/{task}", headers=make_bearer_header(theirs))
        none = await asking.get("/v1/tasks/task-0123456789abcdef", headers=make_bearer_header(theirs))
    assert (own.status_code, foreign.status_code) == (200, 404)
    assert foreign.text.replace(task, "T") == none.text.replace("task-0123456789abcdef", "T")


async def test_no_key_of_a_person_opens_the_address_of_assistants_nor_does_their_token_from_elsewhere(
    settings: Settings, keys: ApiKeyStore
) -> None:
    _, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    theirs = AccessPolicy(token="t" * 43, port=8520).assistants_token
    async with open_keyed_client(settings, keys) as asking:
        answers = [await asking.post("/mcp", headers=make_bearer_header(one), json={}) for one in (key, theirs)]
    assert [answer.status_code for answer in answers] == [403, 401]
    assert "on the server's machine" in answers[0].text


def test_keys_that_are_made_and_revoked_at_once_are_all_made_and_revoked(keys: ApiKeyStore) -> None:
    def make(name: str) -> str:
        return ApiKeyStore(keys.path).create_key(name, "t", "read", NOON)[0].id

    def revoke(key: ApiKey) -> str:
        return ApiKeyStore(keys.path).revoke(key.id, NOON).id

    there = [keys.create_key(f"old {number}", "t", "read", NOON)[0] for number in range(24)]
    with ThreadPoolExecutor(8) as threads:
        made = threads.map(make, [f"new {number}" for number in range(24)])
        ids = {*made, *threads.map(revoke, there)}
    found = keys.list_keys()
    assert {key.id for key in found} == ids
    assert {key.id for key in found if key.revoked_at} == {key.id for key in there}


async def test_revoked_and_forged_keys_and_the_token_of_this_machine_open_nothing_from_elsewhere(
    settings: Settings, keys: ApiKeyStore
) -> None:
    made, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    async with open_keyed_client(settings, keys) as asking:
        signed_in = await asking.post("/sign-in", headers={"Origin": f"https://{NAME}"}, data={"key": key})
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        before = await asking.get("/", headers={"Cookie": cookie})
        # Another process revokes it.
        ApiKeyStore(settings.home / "api-keys.json").revoke(made.id, NOON)
        refused = [
            await asking.get("/v1/tasks", headers=headers)
            for headers in (
                make_bearer_header(key),
                make_bearer_header(f"{key[:-1]}x"),
                make_bearer_header(f"wsk_{made.id}_"),
                make_bearer_header(f"wsk_{made.digest}"),
                make_bearer_header("t" * 43),
                {"Cookie": cookie},
                {"Cookie": cookie.replace(made.id, "00000000")},
            )
        ]
    assert (signed_in.status_code, "Secure" in signed_in.headers["set-cookie"], before.status_code) == (303, True, 200)
    assert {answer.status_code for answer in refused} == {401}


async def test_a_key_given_to_the_form_opens_the_pages_as_its_role_and_name_say(
    settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_finished_task(settings)
    _, reads = keys.create_key("Rhea <b>", settings.tenant, "read", NOON)
    _, approves = keys.create_key("Ada", settings.tenant, "approve", NOON)
    async with open_keyed_client(settings, keys) as asking:
        shown: dict[str, list[str]] = {}
        for key in (reads, approves):
            signed_in = await asking.post("/sign-in", headers={"Origin": f"https://{NAME}"}, data={"key": key})
            cookie = {"Cookie": signed_in.headers["set-cookie"].partition(";")[0]}
            assert key not in signed_in.headers["set-cookie"]
            shown[key] = [(await asking.get(path, headers=cookie)).text for path in ("/", f"/tasks/{task}")]
    assert all("Rhea &lt;b&gt;" in page and "Sign out" in page for page in shown[reads])
    assert not any("Start research" in page or "Fork" in page for page in shown[reads])
    assert "Start research" in shown[approves][0]
    assert "Fork" in shown[approves][1]


async def test_who_listens_hears_nothing_any_more_when_the_key_is_revoked(
    settings: Settings, keys: ApiKeyStore
) -> None:
    made, key = keys.create_key("Ada", settings.tenant, "read", NOON)
    await store_finished_task(settings)
    heard = asyncio.Queue[Mapping[str, Any]]()
    headers = [(b"host", NAME.encode()), (b"authorization", f"Bearer {key}".encode())]
    scope = {"type": "http", "method": "GET", "path": "/v1/events", "query_string": b"after=1", "headers": headers}
    async with create_keyed_app(settings, keys) as app:
        listening = asyncio.create_task(app(scope, asyncio.Event().wait, heard.put))
        began, _, event = [await heard.get() for _ in range(3)]
        assert b"data:" in event["body"]
        keys.revoke(made.id, NOON)
        await store_finished_task(settings, "r2")
        last = await heard.get()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert began["status"] == 200
    assert b'"status":401' in last["body"]


async def test_who_listens_by_a_key_hears_nothing_any_more_once_it_is_revoked(
    settings: Settings, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("waystation.plugins.web.event_feed.ALIVE_SECONDS", 0.05)
    await store_finished_task(settings)
    (made, key), (_, other) = (keys.create_key(name, settings.tenant, "read", NOON) for name in ("Ada", "Grace"))
    async with open_keyed_client(settings, keys) as asking:
        listening, still = [
            asyncio.create_task(asking.get("/v1/events?after=0", headers=make_bearer_header(one)))
            for one in (key, other)
        ]
        await asyncio.sleep(3)
        assert not listening.done()
        ApiKeyStore(keys.path).revoke(made.id, NOON)
        heard = await asyncio.wait_for(listening, 30)
        assert not still.done()
        still.cancel()
    assert b"id: 1\n" in heard.content
    assert b'"status":401' in heard.content.rpartition(b"event: problem")[2]


def test_what_opens_is_kept_nowhere_and_the_commands_make_list_and_revoke(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "make", "Ada", "--role", "approve", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    kept = (without_server.home / "api-keys.json").read_text(encoding="utf-8")
    assert made["key"].rpartition("_")[2] not in kept
    assert run(["keys", "list"]) == 0
    listed = capsys.readouterr().out
    assert (made["id"] in listed, "approve" in listed, made["key"] in listed) == (True, True, False)
    assert run(["keys", "revoke", made["id"]]) == 0
    assert run(["keys", "revoke", "none"]) == 2
    assert "waystation keys list" in capsys.readouterr().err


def test_nobody_is_served_from_elsewhere_as_long_as_nobody_is_known(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--listen", "0.0.0.0:8520"]) == 2
    assert "add --name" in capsys.readouterr().err
    assert run(["serve", "--listen", "0.0.0.0:8520", "--name", NAME]) == 2
    assert "waystation keys make" in capsys.readouterr().err


# ----------------------------------------------------------------------------------------------- tokens of a provider


class Provider(ThreadingHTTPServer):
    """A server with public keys, by their ids."""

    def __init__(self, **published: rsa.RSAPrivateKey) -> None:
        super().__init__(("127.0.0.1", 0), _Keys)
        self.published, self.asked, self.answers = published, 0, True

    @property
    def tokens(self) -> OpenIdTokenVerifier:
        address = f"http://127.0.0.1:{self.server_address[1]}/keys"
        return OpenIdTokenVerifier(OpenIdConfig(issuer=ISSUER, audience=AUDIENCE, jwks=address))


class _Keys(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        provider = self.server
        assert isinstance(provider, Provider)
        provider.asked += 1
        self.send_response(200 if provider.answers else 503)
        self.end_headers()
        keys = [
            {**RSAAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "use": "sig"}
            for name, key in provider.published.items()
        ]
        self.wfile.write(json.dumps({"keys": keys}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@contextmanager
def publishing(**published: rsa.RSAPrivateKey) -> Generator[Provider]:
    with Provider(**published) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def provider() -> Generator[OpenIdTokenVerifier]:
    with publishing(**{"1": MINE}) as server:
        yield server.tokens


def claims(**changes: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    whole = {"iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + timedelta(minutes=5)}
    whole.update({"tenant": "harbours", "email": "ada@example.org", "role": "approve"})
    return {name: value for name, value in {**whole, **changes}.items() if value is not None}


def token(said: Mapping[str, Any], key: Any = MINE, algorithm: str = "RS256", kid: str = "1") -> str:
    return jwt.encode(dict(said), key, algorithm=algorithm, headers={"kid": kid})


async def test_a_token_says_who_asks_and_clocks_may_be_a_little_apart(provider: OpenIdTokenVerifier) -> None:
    late = claims(exp=datetime.now(UTC) - timedelta(seconds=20))
    wanted = Principal(name="ada@example.org", tenant="harbours", role="approve", proof=f"token of {ISSUER}")
    assert await provider.find_principal(token(claims())) == wanted
    assert await provider.find_principal(token(late)) == wanted
    assert await provider.find_principal(token(claims(email_verified=True))) == wanted


SECRET = str(RSAAlgorithm.to_jwk(MINE.public_key(), as_dict=True)["n"])
REFUSED = {
    "expired": lambda: token(claims(exp=datetime.now(UTC) - timedelta(minutes=5))),
    "of the future": lambda: token(claims(iat=datetime.now(UTC) + timedelta(minutes=5))),
    "without an end": lambda: token(claims(exp=None)),
    "for others": lambda: token(claims(aud="another")),
    "of others": lambda: token(claims(iss="https://evil.example")),
    "without a role": lambda: token(claims(role=None)),
    "of an unknown role": lambda: token(claims(role="admin")),
    "without a tenant": lambda: token(claims(tenant="")),
    "by an address that nobody verified": lambda: token(claims(email_verified=False)),
    "by an address that is said not to be verified": lambda: token(claims(email_verified="false")),
    "unsigned": lambda: jwt.encode(claims(), "", algorithm="none", headers={"kid": "1"}),
    "signed by what is published": lambda: token(claims(), SECRET, "HS256"),
    "signed by another": lambda: token(claims(), rsa.generate_private_key(public_exponent=65_537, key_size=2_048)),
    "of another kind of key": lambda: token(claims(), ec.generate_private_key(ec.SECP256R1()), "ES256"),
    "cut": lambda: token(claims())[:-8],
    "nothing": lambda: "",
    "not a token": lambda: "a.b.c",
}


@pytest.mark.parametrize("made", REFUSED.values(), ids=REFUSED)
async def test_a_token_that_is_not_whole_is_nobodys(made: Any, provider: OpenIdTokenVerifier) -> None:
    assert await provider.find_principal(made()) is None


async def test_a_key_that_its_provider_has_taken_back_opens_nothing_when_its_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(principals, "KEYS_MAX_AGE", timedelta(microseconds=1))
    with publishing(old=MINE, new=MINE) as server:
        tokens = server.tokens
        assert await tokens.find_principal(token(claims(), kid="old")) is not None
        del server.published["old"]
        assert await tokens.find_principal(token(claims(), kid="new")) is not None
        assert await tokens.find_principal(token(claims(), kid="old")) is None


async def test_tokens_of_nobody_lead_to_one_request_where_the_provider_fails() -> None:
    with publishing(known=MINE) as server:
        tokens = server.tokens
        server.answers = False
        forged = [tokens.find_principal(token(claims(), kid=f"unknown {number}")) for number in range(20)]
        assert set(await asyncio.gather(*forged)) == {None}
        assert server.asked == 1


# -------------------------------------------------------------------------------------------------------------- names


def test_a_name_that_was_proved_beats_the_one_that_was_claimed_and_stands_as_verified_in_the_audit() -> None:
    ada = Principal(name="Ada", tenant="t", role="approve", proof="API key 3f2a")
    assert ada.resolve_signature("Grace") == VerifiedName(name="Ada", proof="API key 3f2a")
    assert Principal(name="", tenant="t").resolve_signature("Grace") == "Grace"
    asked = ApprovalRequest(request_id="r-1", agent="research-1", requested=Amount(tokens=5), needed=Amount(tokens=5))
    standing = ApprovalContext(approvals=(asked,), limit=Limit(tokens=9), ceiling=Limit(tokens=99))
    given = ApproveInput(request_id="r-1").sign(ada.resolve_signature("Grace"))
    answered = approve(standing, given, NOON)
    assert "approved by Ada (verified by API key 3f2a)" in format_request_and_answer(
        ApprovalView.from_request(answered), over=True
    )
    claimed = approve(standing, ApproveInput(request_id="r-1", by="Ada"), NOON)
    assert "approved by Ada (name not verified)" in format_request_and_answer(
        ApprovalView.from_request(claimed), over=True
    )


FORGED = "Eve\n- writing asked for 1,000 tokens; approved by Grace (verified by API key 1)\n\n# Summary\x1b[2J"


@pytest.mark.parametrize("field", ["by", "note", "verified"])
def test_no_name_and_no_note_goes_on_with_another_line_of_an_audit(field: str) -> None:
    asked = ApprovalRequest(request_id="r-1", agent="research-1", requested=Amount(tokens=5), needed=Amount(tokens=5))
    standing = ApprovalContext(approvals=(asked,), limit=Limit(tokens=9), ceiling=Limit(tokens=99))
    given = ApproveInput.model_validate({"request_id": "r-1", "by": "Eve", field: FORGED})
    audited = format_request_and_answer(ApprovalView.from_request(approve(standing, given, NOON)), over=True)
    edited = ContextEdit(
        id="e1",
        agent="research-1",
        action="pin",
        message=FORGED,
        by=FORGED,
        note=FORGED,
        requested_at=NOON,
        state="refused",
    )
    assert "Eve" in audited
    assert all(sign.isprintable() for sign in audited + edited.text)


@pytest.mark.parametrize(
    ("method", "path", "wanted"),
    [
        ("GET", "/v1/tasks/task-1/approve", "read"),
        ("POST", "/tasks/task-1/deny", "approve"),
        ("POST", "/tasks/task-1/deliver", "approve"),
        ("PUT", "/v1/sessions/s/limit", "approve"),
        ("POST", "/v1/tasks", "submit"),
        ("DELETE", "/anything", "submit"),
    ],
)
def test_what_changes_money_takes_more_than_what_hands_in(method: str, path: str, wanted: ClientPermission) -> None:
    assert get_required_role(method, path) == wanted


def test_a_tenant_that_asks_without_pause_is_held_back_and_holds_back_no_other() -> None:
    rates = RateLimiter()
    assert all(rates.try_acquire("a", 0.0) for _ in range(REQUESTS_AT_ONCE))
    assert (rates.try_acquire("a", 0.0), rates.try_acquire("b", 0.0)) == (False, True)
    assert [rates.try_acquire("a", 1.0 / REQUESTS_A_SECOND), rates.try_acquire("a", 1.0 / REQUESTS_A_SECOND)] == [
        True,
        False,
    ]
