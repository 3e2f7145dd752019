"""The remote codec protocol: what a codec server answers, and whom it refuses."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from io import BytesIO
from typing import NamedTuple, cast

import aiohttp
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload, Payloads

from tests.support.free_ports import find_free_port
from waystation.kernel.errors import BadInput
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.temporal.codec import ENCODING, ENCRYPTED, KEY_ID, EncryptionCodec
from waystation.runtime.temporal.codec_server import (
    MAX_BODY_BYTES,
    CodecAccessPolicy,
    CodecServer,
    CodecServerAddress,
    run_codec_server,
)

SEALER = AesGcmCipher(bytes(range(32)), "payloads")
CODEC = EncryptionCodec({SEALER.key_id: SEALER}, SEALER.key_id)
UI = "http://127.0.0.1:8233"
OPEN = CodecAccessPolicy(origins=frozenset({UI}), path="secret")
WITH_TOKEN = CodecAccessPolicy(origins=frozenset({UI}), token=SecretStr("t0ken"))
PLAIN = Payload(metadata={ENCODING: b"json/plain"}, data=b'"Anna Quist"')
FROM_UI = {"Origin": UI, "X-Namespace": "default"}


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def payloads(self) -> list[Payload]:
        return list(ParseDict(json.loads(self.text), Payloads()).payloads)

    @property
    def message(self) -> str:
        return cast("dict[str, str]", json.loads(self.text))["message"]


class Asked:
    """A codec server, asked over HTTP."""

    def __init__(self, endpoint: str, session: aiohttp.ClientSession) -> None:
        self.endpoint, self._session = endpoint, session

    async def post(self, path: str, body: bytes, headers: Mapping[str, str] = FROM_UI, method: str = "POST") -> Answer:
        async with self._session.request(
            method, f"{self.endpoint}{path}", data=BytesIO(body), headers=headers
        ) as answer:
            return Answer(answer.status, answer.headers.copy(), await answer.text())

    async def decode(self, *payloads: Payload, headers: Mapping[str, str] = FROM_UI) -> Answer:
        return await self.post("/decode?preserveStorageRefs=true", body_of(*payloads), headers)


def body_of(*payloads: Payload) -> bytes:
    return json.dumps(MessageToDict(Payloads(payloads=payloads))).encode()


@asynccontextmanager
async def asked(access: CodecAccessPolicy = OPEN) -> AsyncGenerator[Asked]:
    async with run_codec_server(CodecServer(CODEC, access)) as endpoint, aiohttp.ClientSession() as session:
        yield Asked(endpoint, session)


@pytest.fixture
async def server() -> AsyncGenerator[Asked]:
    async with asked() as opened:
        yield opened


# --------------------------------------------------------------------------------------------------------- answered


async def test_the_ui_has_payloads_decrypted_and_plain_ones_left(server: Asked) -> None:
    (sealed,) = await CODEC.encode([PLAIN])
    answer = await server.decode(sealed, PLAIN)
    assert (answer.status, answer.payloads) == (200, [PLAIN, PLAIN])
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Vary"] == "Origin"
    assert answer.headers["Content-Type"].startswith("application/json")


async def test_a_program_that_is_no_browser_sends_no_origin_and_is_answered(server: Asked) -> None:
    answer = await server.decode(*await CODEC.encode([PLAIN]), headers={})
    assert (answer.status, answer.payloads) == (200, [PLAIN])
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_a_browser_is_told_before_it_asks_that_the_ui_may(server: Asked) -> None:
    wanted = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type,x-namespace"}
    answer = await server.post("/decode", b"", {"Origin": UI, **wanted}, "OPTIONS")
    assert (answer.status, answer.text) == (204, "")
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert answer.headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    assert answer.headers["Access-Control-Allow-Headers"] == "Authorization, Content-Type, X-Namespace"


async def test_a_server_that_also_encodes_encrypts_what_a_ui_is_about_to_send() -> None:
    async with asked(CodecAccessPolicy(origins=OPEN.origins, path="secret", may_encrypt=True)) as server:
        answer = await server.post("/encode", body_of(PLAIN))
    assert answer.status == 200
    assert await CODEC.decode(answer.payloads) == [PLAIN]


async def test_a_token_is_asked_for_instead_of_a_secret_path_but_not_before_a_browser_may_send_it() -> None:
    (sealed,) = await CODEC.encode([PLAIN])
    async with asked(WITH_TOKEN) as server:
        right = await server.decode(sealed, headers={**FROM_UI, "Authorization": "Bearer t0ken"})
        refused = [
            await server.decode(sealed, headers={**FROM_UI, **header})
            for header in ({}, {"Authorization": "Bearer t0keN"}, {"Authorization": "t0ken"}, {"Authorization": "é"})
        ]
        preflight = await server.post("/decode", b"", {"Origin": UI}, "OPTIONS")
    assert (right.status, right.payloads) == (200, [PLAIN])
    assert [answer.status for answer in refused] == [401] * 4
    assert refused[0].message.startswith("a token is needed")
    assert preflight.status == 204


# ----------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("path", ["/decode", "/wrong/decode", "/%FF/decode", "/secret/other", "/secret", "/"])
async def test_who_does_not_know_the_path_finds_nothing(path: str) -> None:
    async with asked() as server:
        server.endpoint = server.endpoint.removesuffix("/secret")
        answer = await server.post(path, body_of(*await CODEC.encode([PLAIN])))
    assert answer.status == 404
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
async def test_only_posts_are_answered(server: Asked, method: str) -> None:
    assert (await server.post("/decode", b"", FROM_UI, method)).status == 405


@pytest.mark.parametrize("origin", ["https://evil.example", "http://127.0.0.1:8234", "null", f"{UI}.evil.example", ""])
async def test_pages_of_others_are_refused_also_before_they_ask(server: Asked, origin: str) -> None:
    for method in ("POST", "OPTIONS"):
        body = body_of(*await CODEC.encode([PLAIN]))
        answer = await server.post("/decode", body, {"Origin": origin}, method)
        assert answer.status == 403
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_nothing_is_encrypted_unless_the_server_was_started_for_it(server: Asked) -> None:
    answer = await server.post("/encode", body_of(PLAIN))
    assert answer.status == 403
    assert "--encode" in answer.message


GARBAGE = [
    b"",
    b"payloads",
    b"[]",
    b'{"payloads": 7}',
    b'{"payloads": [{"data": 7}]}',
    b'{"payloads": [{"metadata": 3}]}',
    b'{"payloads": [[]]}',
    b'"payloads"',
    b"\xff\xfe\x00",
    b'{"payloads": [{"data": "' + base64.b64encode(b"x") + b'"}',
    b'{"payloads": ' + b"[" * 100_000,
    b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
async def test_garbage_is_refused_without_being_repeated(
    server: Asked, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await server.post("/decode", body, {**FROM_UI, "Content-Type": "application/json"})
    assert (answer.status, answer.message.split(" like ")[0]) == (400, "the body must be JSON")
    assert answer.headers["Access-Control-Allow-Origin"] == UI
    assert caplog.messages == []


async def test_a_body_that_is_too_large_is_refused(server: Asked) -> None:
    answer = await server.post("/decode", b" " * (MAX_BODY_BYTES + 1))
    assert (answer.status, answer.message) == (413, f"the request is larger than {MAX_BODY_BYTES} bytes")


async def test_payloads_of_another_key_and_changed_ones_are_told_with_the_key_s_id(
    server: Asked, caplog: pytest.LogCaptureFixture
) -> None:
    other = AesGcmCipher(bytes(32), "payloads")
    strange = await EncryptionCodec({other.key_id: other}, other.key_id).encode([PLAIN])
    answer = await server.decode(*strange)
    assert answer.status == 422
    assert answer.message.startswith(
        f"a payload in Temporal is encrypted with key '{other.key_id}', and the keys on this machine"
    )
    claim = {ENCODING: ENCRYPTED, KEY_ID: SEALER.key_id.encode()}
    assert (await server.decode(Payload(metadata=claim, data=b"?" * 99))).status == 422
    assert (await server.decode(Payload(metadata={ENCODING: ENCRYPTED, KEY_ID: b"\xff"}))).status == 422
    assert caplog.messages == []


async def test_what_is_no_http_is_answered_and_not_logged(server: Asked, caplog: pytest.LogCaptureFixture) -> None:
    port = int(server.endpoint.rsplit(":", 1)[1].split("/")[0])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"Anna Quist \x00\xff\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.0 400") or answer.startswith(b"HTTP/1.1 400")
    assert "Quist" not in caplog.text


# ---------------------------------------------------------------------------------------------------------- listening


async def test_it_listens_on_this_machine_alone_unless_a_token_is_asked_for() -> None:
    async with run_codec_server(CodecServer(CODEC, OPEN)) as endpoint:
        assert endpoint.startswith("http://127.0.0.1:")
        assert endpoint.endswith("/secret")
    everywhere = CodecServerAddress("0.0.0.0", find_free_port())
    with pytest.raises(BadInput, match=r"other machines can reach a codec server at .*: set WAYSTATION_CODEC_TOKEN"):
        async with run_codec_server(CodecServer(CODEC, OPEN), everywhere):
            pass
    async with run_codec_server(CodecServer(CODEC, WITH_TOKEN), everywhere) as endpoint:
        assert endpoint == f"http://0.0.0.0:{everywhere.port}"


async def test_a_port_that_is_taken_is_told() -> None:
    async with run_codec_server(CodecServer(CODEC, OPEN)) as endpoint:
        taken = CodecServerAddress(port=int(endpoint.rsplit(":", 1)[1].split("/")[0]))
        with pytest.raises(BadInput, match=rf"cannot listen at 127.0.0.1:{taken.port}"):
            async with run_codec_server(CodecServer(CODEC, OPEN), taken):
                pass
