"""What every `ChatModel` keeps to: scripted, behind the Messages protocol wherever that is, behind chat completions."""

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import JsonValue

from tests.support.vendor_servers import (
    AWS_KEY,
    AWS_SECRET,
    MODEL,
    REGION,
    AwsSignatureServer,
    BedrockServer,
    ChatServer,
    EntraServer,
    HeaderKeyServer,
    VendorServer,
    VertexServer,
)
from waystation.context.transcript import Message, Text, Thinking, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import ModelError, ModelRejected, ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.endpoints import ModelEndpoint, NamedEndpoint
from waystation.models.http_errors import DEFAULT_TIMEOUTS
from waystation.models.ports import (
    ChatModel,
    ModelRequest,
    ModelResponse,
    ReplyDelta,
    StopReason,
    StreamingChatModel,
    ToolSpec,
)
from waystation.testing.doubles import ScriptedModel, make_scripted_response
from waystation.workers.models import create_endpoint_model

Saying = Sequence[ModelResponse | ModelError]

REQUEST = ModelRequest(
    model=MODEL, system="Work.", messages=(build_user_message("m1", "What changed?"),), max_output=100
)


class Kind(NamedTuple):
    """One kind of client, and what its protocol cannot say."""

    endpoint: NamedEndpoint | None
    server: Callable[[Saying], VendorServer] = VendorServer
    counts: bool = True
    thinks: bool = True

    def made(self, saying: Saying) -> ChatModel:
        """A client whose endpoint says that."""
        return ScriptedModel(saying) if self.endpoint is None else self.asking(self.server(saying))

    def asking(self, server: VendorServer) -> ChatModel:
        """A client of this endpoint."""
        assert self.endpoint is not None
        row = ModelEndpoint(url=self.endpoint.url, kind=self.endpoint.kind)
        return create_endpoint_model(self.endpoint, row, DEFAULT_TIMEOUTS, server.http_client())


def by_headers(*names: str) -> Callable[[Saying], VendorServer]:
    def made(saying: Saying) -> VendorServer:
        return HeaderKeyServer(saying, headers=names)

    return made


def compatible(auth: str) -> NamedEndpoint:
    return NamedEndpoint.model_validate(
        {"kind": "compatible", "base_url": "http://model.test", "auth": auth, "key_from": "K"}
    )


KINDS: dict[str, Kind] = {
    "scripted": Kind(None),
    "anthropic": Kind(NamedEndpoint(kind="anthropic", key_from="K")),
    "compatible, bearer": Kind(compatible("bearer")),
    "compatible, x-api-key": Kind(compatible("x-api-key"), HeaderKeyServer),
    "compatible, both": Kind(compatible("both"), by_headers("authorization", "x-api-key")),
    "bedrock": Kind(NamedEndpoint(kind="bedrock", region=REGION), BedrockServer, counts=False),
    "mantle": Kind(NamedEndpoint(kind="mantle", region=REGION), AwsSignatureServer),
    "vertex": Kind(NamedEndpoint(kind="vertex", region="europe-west1", project="harbours"), VertexServer),
    "foundry": Kind(
        NamedEndpoint(kind="foundry", resource="harbours", key_from="K"),
        by_headers("x-api-key", "api-key"),
    ),
    "foundry, by Entra": Kind(NamedEndpoint(kind="foundry", resource="harbours"), EntraServer),
    "openai": Kind(
        NamedEndpoint(kind="openai", key_from="K", base_url="http://chat.test/v1"), ChatServer, False, False
    ),
    "openai, at its maker's": Kind(NamedEndpoint(kind="openai", key_from="K"), ChatServer, False, False),
}


@contextmanager
def tokens() -> Generator[str]:
    """Who gives tokens, on loopback: Google's to those who sign for them, Entra's to a machine of Azure's."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.give({"access_token": "token-of-google", "expires_in": 3600})

        def do_GET(self) -> None:
            asked = parse_qs(urlsplit(self.path).query)
            mine = self.headers["X-IDENTITY-HEADER"] == "machine" and asked["resource"] == ["https://ai.azure.com"]
            self.give({"access_token": "token-of-entra" if mine else "nobodys", "expires_on": int(time.time()) + 3600})

        def give(self, token: dict[str, JsonValue]) -> None:
            body = json.dumps({**token, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def giver() -> Iterator[str]:
    """Where tokens are given."""
    with tokens() as url:
        yield url


@pytest.fixture(scope="module")
def google(tmp_path_factory: pytest.TempPathFactory, giver: str) -> Path:
    """Credentials of a service account."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    account = {"type": "service_account", "client_email": "a@b", "token_uri": giver, "private_key": pem}
    path = tmp_path_factory.mktemp("google") / "account.json"
    path.write_text(json.dumps({**account, "project_id": "another", "private_key_id": "1"}))
    return path


@pytest.fixture(params=KINDS)
def kind(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, google: Path, giver: str, tmp_path: Path
) -> Kind:
    """With credentials where its vendor's programs look for them."""
    monkeypatch.setenv("K", "key")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", AWS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", AWS_SECRET)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(google))
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "ManagedIdentityCredential")
    monkeypatch.setenv("IDENTITY_ENDPOINT", giver)
    monkeypatch.setenv("IDENTITY_HEADER", "machine")
    return KINDS[str(request.param)]


async def test_a_reply_arrives_whole(kind: Kind) -> None:
    said = make_scripted_response(
        *([Thinking(thinking="Hm.", signature="c2ln")] if kind.thinks else []),
        Text(text="I look."),
        ToolUse(id="t1", name="search", input={"query": "x", "limits": [1, 2.5, None]}),
        ToolUse(id="t2", name="search", input={}),
        usage=Usage(input=3, cache_write=5 if kind.thinks else 0, cache_read=7, output=11),
        model=MODEL,
    )
    assert await kind.made([said]).complete(REQUEST) == said


class DeltaRecorder:
    """A `ReplyObserver` that records what it is notified of."""

    def __init__(self) -> None:
        self.begun = 0
        self.deltas: list[ReplyDelta] = []

    def begin_reply(self) -> None:
        self.begun += 1
        self.deltas.clear()

    def receive_delta(self, delta: ReplyDelta) -> None:
        assert self.begun == 1, "the call is announced before its reply"
        self.deltas.append(delta)

    def join(self, kind: str) -> str:
        return "".join(delta.text for delta in self.deltas if delta.kind == kind)


async def test_an_observer_receives_the_texts_of_a_reply_in_order_and_no_arguments(kind: Kind) -> None:
    said = make_scripted_response(
        *([Thinking(thinking="Which depth?", signature="c2ln")] if kind.thinks else []),
        Text(text="I look.\n\nThe depth is 4.1 m."),
        ToolUse(id="t1", name="search", input={"query": "hidden"}),
        model=MODEL,
    )
    model, observer = kind.made([said]), DeltaRecorder()
    assert isinstance(model, StreamingChatModel)
    assert await model.complete_observed(REQUEST, observer) == said
    assert observer.join("text") == "I look.\n\nThe depth is 4.1 m."
    assert observer.join("thinking") == ("Which depth?" if kind.thinks else "")
    order = [one for one, _ in groupby(delta.kind for delta in observer.deltas)]
    assert order == [*(["thinking"] if kind.thinks else []), "text", "tool_call"]
    assert "hidden" not in str(observer.deltas)


async def test_what_was_said_and_done_is_sent_back(kind: Kind) -> None:
    if kind.endpoint is None:
        return
    call = ToolUse(id="t1", name="search", input={"query": "Größe"})
    talk = (
        *REQUEST.messages,
        Message(id="m2", role="assistant", blocks=(Text(text="I look."), call)),
        Message(id="m3", role="user", blocks=(ToolResult(tool_use_id="t1", content="4.1 m"), Text(text="Go on."))),
    )
    server = kind.server([make_scripted_response(Text(text="Fine."), model=MODEL)])
    tool = ToolSpec(name="search", description="Search.", input_schema={"type": "object"})
    asked = REQUEST.replace(messages=(*talk, build_user_message("s1", "half is left")), tools=(tool,))
    await kind.asking(server).complete(asked)
    sent = json.dumps(server.bodies[0], ensure_ascii=False)
    for words in ("What changed?", "I look.", "t1", "search", "Größe", "4.1 m", "Go on.", "half is left", "Work."):
        assert words in sent
    assert sent.index("4.1 m") < sent.index("Go on.") < sent.index("half is left")


async def test_replies_come_in_order_and_one_for_each_call(kind: Kind) -> None:
    first, second = (
        make_scripted_response(Text(text="One."), model=MODEL),
        make_scripted_response(Text(text="Two."), model=MODEL),
    )
    model = kind.made([first, second])
    assert [await model.complete(REQUEST), await model.complete(REQUEST)] == [first, second]


async def test_an_empty_refusal_is_a_reply(kind: Kind) -> None:
    said = make_scripted_response(stop=StopReason.REFUSAL, model=MODEL)
    assert await kind.made([said]).complete(REQUEST) == said


async def test_what_may_pass_is_unavailable_and_names_the_delay(kind: Kind) -> None:
    said = make_scripted_response(Text(text="Now."), model=MODEL)
    model = kind.made([ModelUnavailable("later", retry_after=2.5, possibly_billed=False), said])
    with pytest.raises(ModelUnavailable) as raised:
        await model.complete(REQUEST)
    assert raised.value.retry_after == 2.5
    assert not raised.value.possibly_billed
    assert await model.complete(REQUEST) == said


async def test_what_will_not_pass_is_rejected(kind: Kind) -> None:
    with pytest.raises(ModelRejected):
        await kind.made([ModelRejected("no")]).complete(REQUEST)


async def test_a_model_with_nothing_left_to_say_rejects(kind: Kind) -> None:
    with pytest.raises(ModelRejected):
        await kind.made([]).complete(REQUEST)


async def test_counting_tokens_is_repeatable_grows_with_the_request_and_says_nothing(kind: Kind) -> None:
    said = make_scripted_response(Text(text="Fine."), model=MODEL)
    model = kind.made([said])
    tool = ToolSpec(name="search", description="Search the documents. " * 5, input_schema={"type": "object"})
    longer = REQUEST.replace(tools=(tool,))
    counted, more = await model.count_tokens(REQUEST), await model.count_tokens(longer)
    if kind.counts:
        assert counted is not None
        assert more is not None
        assert 0 < counted < more
    else:
        assert (counted, more) == (None, None)
    assert await model.count_tokens(REQUEST) == counted
    assert await model.complete(REQUEST) == said


async def test_closing_ends_without_a_word(kind: Kind) -> None:
    await kind.made([]).aclose()


@pytest.mark.parametrize("kind", [name for name in KINDS if name != "scripted"], indirect=True)
async def test_who_has_no_credentials_or_others_is_rejected_and_told_so(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kind.endpoint is not None
    monkeypatch.setenv("K", "another")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere")
    monkeypatch.setenv("AZURE_TOKEN_CREDENTIALS", "EnvironmentCredential")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    there = {"bedrock": "eu-north-1", "mantle": "eu-north-1"}  # AWS's library keeps what it found for a region
    elsewhere = kind.endpoint.replace(region=there.get(kind.endpoint.kind, kind.endpoint.region))
    with pytest.raises(ModelRejected, match=r"not accepted|no credentials"):
        await kind._replace(endpoint=elsewhere).made([make_scripted_response(Text(text="Fine."))]).complete(REQUEST)


@pytest.mark.parametrize("kind", ["bedrock", "mantle"], indirect=True)
async def test_a_signature_for_another_region_is_refused(kind: Kind) -> None:
    assert kind.endpoint is not None
    elsewhere = kind.endpoint.replace(region="us-east-2")
    with pytest.raises(ModelRejected, match="not accepted"):
        await kind._replace(endpoint=elsewhere).made([make_scripted_response(Text(text="Fine."))]).complete(REQUEST)
