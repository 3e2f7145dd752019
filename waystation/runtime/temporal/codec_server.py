"""The codec server: decrypts what Temporal's UI and command line show, over Temporal's remote codec protocol.

Requests need a token or a secret path, and browsers are answered only for pages of the UI.
"""

import hmac
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from pydantic import JsonValue, SecretStr, ValidationError
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import PayloadCodec

from waystation.kernel.errors import BadInput, WrongKey
from waystation.kernel.value import Value

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Maximum size of a request in bytes. A page of history is at most 4 MiB, a third more in JSON."""
PREFLIGHT_SECONDS = 600
"""Seconds for which a browser may cache the answer to a preflight request."""
LOOPBACK = "127.0.0.1"
OK, NO_CONTENT, BAD_REQUEST, UNAUTHORIZED, FORBIDDEN = 200, 204, 400, 401, 403
NOT_FOUND, TOO_LARGE, UNREADABLE = 404, 413, 422

PayloadTransform = Callable[[list[Payload]], Awaitable[list[Payload]]]


class CodecServerAddress(NamedTuple):
    """Where the server listens: an IP address and a port; port 0: any free one."""

    host: str = LOOPBACK
    port: int = 0


AT_ANY_PORT = CodecServerAddress()


@dataclass(frozen=True)
class CodecAccessPolicy:
    """Who may use the codec server."""

    origins: frozenset[str]
    """Origins of the UIs, such as http://127.0.0.1:8233. Clients other than browsers send none."""
    path: str = ""
    """The secret path segment; empty if only the token protects the server."""
    token: SecretStr | None = None
    """Required as `Authorization: Bearer`."""
    may_encrypt: bool = False
    """Whether it also encrypts, which a UI needs in order to send signals."""

    def is_secret_path(self, given: str) -> bool:
        """Return whether this is the secret path segment, in constant time."""
        return hmac.compare_digest(given.encode(errors="replace"), self.path.encode())

    def is_valid_token(self, header: str) -> bool:
        """Return whether the header has the required token."""
        if self.token is None:
            return True
        kind, _, given = header.partition(" ")
        expected = self.token.get_secret_value().encode()
        return kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(errors="replace"), expected)


class CodecRequestBody(Value):
    """A request's payloads. Validated first, since protobuf's own parser accepts lists and text as an object."""

    payloads: list[dict[str, JsonValue]]


class _Refused(Exception):
    """A refused request. The message gives the reason, and repeats nothing of the request."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class CodecServer:
    """Answers `POST <path>/decode`, and `POST <path>/encode` if enabled. Nothing is logged."""

    codec: PayloadCodec
    access: CodecAccessPolicy

    async def handle_request(self, request: web.Request) -> web.Response:
        """Return the converted payloads, or a status of 400 or more with a message in JSON."""
        allowed = {"Vary": "Origin"}
        try:
            allowed |= self._admit(request)
            if request.method == "OPTIONS":
                return web.Response(status=NO_CONTENT, headers=allowed)
            if not self.access.is_valid_token(request.headers.get("Authorization", "")):
                raise _Refused(
                    UNAUTHORIZED,
                    "a token is needed: send the header `Authorization: Bearer TOKEN`, with TOKEN from "
                    "WAYSTATION_CODEC_TOKEN",
                )
            coded = await self._coding(request)(list((await _payloads(request)).payloads))
        except _Refused as refused:
            return web.json_response({"message": str(refused)}, status=refused.status, headers=allowed)
        except WrongKey as unreadable:
            return web.json_response({"message": str(unreadable)}, status=UNREADABLE, headers=allowed)
        return web.json_response(MessageToDict(Payloads(payloads=coded)), status=OK, headers=allowed)

    def _admit(self, request: web.Request) -> dict[str, str]:
        """Return the CORS headers that let the UI read the answer. Raises `_Refused`."""
        if not self.access.is_secret_path(request.match_info.get("path", "")):
            raise _Refused(NOT_FOUND, "there is nothing here")
        origin = request.headers.get("Origin")
        if origin is None:
            return {}
        if origin not in self.access.origins:
            raise _Refused(
                FORBIDDEN, "this page is not allowed: add its origin with `waystation codec-server --origin`"
            )
        return {
            "Access-Control-Allow-Origin": origin,
            "Access-Control-Allow-Methods": "POST, OPTIONS",
            "Access-Control-Allow-Headers": "Authorization, Content-Type, X-Namespace",
            "Access-Control-Max-Age": str(PREFLIGHT_SECONDS),
        }

    def _coding(self, request: web.Request) -> PayloadTransform:
        if request.match_info["action"] == "decode":
            return self.codec.decode
        if not self.access.may_encrypt:
            raise _Refused(
                FORBIDDEN,
                "this codec server only decrypts: to send signals from the UI, start it with "
                "`waystation codec-server --encode`",
            )
        return self.codec.encode


async def _payloads(request: web.Request) -> Payloads:
    try:
        body = CodecRequestBody.model_validate_json(await request.read(), extra="ignore")
        return ParseDict(body.model_dump(), Payloads(), ignore_unknown_fields=True)
    except web.HTTPRequestEntityTooLarge:
        raise _Refused(TOO_LARGE, f"the request is larger than {MAX_BODY_BYTES} bytes") from None
    except (ValidationError, ParseError):
        raise _Refused(BAD_REQUEST, 'the body must be JSON like {"payloads": [{"metadata": {}, "data": ""}]}') from None


@asynccontextmanager
async def run_codec_server(server: CodecServer, listening: CodecServerAddress = AT_ANY_PORT) -> AsyncGenerator[str]:
    """Serve until the block ends; yields the endpoint for the UI, which includes the secret path.

    Raises:
        BadInput: The address cannot be bound, or others could use the server without a token.
    """
    if listening.host not in {LOOPBACK, "::1"} and server.access.token is None:
        raise BadInput(
            f"other machines can reach a codec server at {listening.host}: set WAYSTATION_CODEC_TOKEN, or let "
            f"the server listen at {LOOPBACK}"
        )
    app = web.Application(client_max_size=MAX_BODY_BYTES)
    place = "/{path}/{action:decode|encode}" if server.access.path else "/{action:decode|encode}"
    app.add_routes([web.post(place, server.handle_request), web.options(place, server.handle_request)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        site = web.TCPSite(runner, *listening)
        try:
            await site.start()
        except OSError as error:
            raise BadInput(
                f"cannot listen at {listening.host}:{listening.port}: {error.strerror}. Choose another port or address"
            ) from error
        port = listening.port or runner.addresses[0][1]
        host = f"[{listening.host}]" if ":" in listening.host else listening.host
        yield f"http://{host}:{port}/{server.access.path}".rstrip("/")
    finally:
        await runner.cleanup()
