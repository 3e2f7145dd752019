"""`waystation codec-server`: decrypts Waystation's payloads for Temporal's UI and command line."""

import asyncio
import secrets
from contextlib import AbstractAsyncContextManager
from typing import Annotated
from urllib.parse import urlsplit

import typer

from waystation.cli.console import print_message, print_text
from waystation.config.setting_types import parse_listen_address
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.runtime.store_setup import build_payload_codec, load_key_if_exists
from waystation.runtime.temporal.codec_server import (
    AT_ANY_PORT,
    CodecAccessPolicy,
    CodecServer,
    CodecServerAddress,
    run_codec_server,
)
from waystation.runtime.temporal.connect import resolve_temporal_target
from waystation.workers.shutdown import stop_on_signals

PATH_BYTES = 16
"""Length of the secret path: 128 bits cannot be guessed."""
LOOPBACK_NAMES = ("127.0.0.1", "localhost")

app = typer.Typer()


@app.command()
def codec_server(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Address to listen on; default: a free port of this machine."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL",
            help="Address of a Temporal UI that may use this server; repeatable. Default: the UI of the current "
            "Temporal server.",
        ),
    ] = None,
    encode: Annotated[
        bool,
        typer.Option("--encode", help="Also encrypt, so that the UI can send signals."),
    ] = False,
) -> None:
    """Run a codec server, which decrypts payloads for the Temporal UI, until Ctrl-C.

    `dev` and `up` start a codec server themselves if payloads are encrypted.
    """
    settings = Settings()
    origins = _origins(tuple(origin or _ui_in_use(settings)))
    listening = CodecServerAddress(*parse_listen_address("--listen", listen)) if listen else AT_ANY_PORT
    asyncio.run(_serve(_server(settings, origins, encodes=encode), listening))


async def _serve(server: CodecServer, listening: CodecServerAddress) -> None:
    stop_on_signals()
    try:
        async with run_codec_server(server, listening) as endpoint:
            print_text(endpoint)
            pages = ", ".join(sorted(server.access.origins)) or "none (add one with --origin)"
            print_message(
                f"Enter this link as the codec endpoint in the Temporal UI. {_describe_access(server)} "
                f"Allowed pages: {pages}. Press Ctrl-C to stop the server."
            )
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        print_message("Stopped.")


def serve_codec_for_ui(settings: Settings, ui_url: str) -> AbstractAsyncContextManager[str]:
    """Return a codec server for the pages of one UI, which also sends signals; it yields its endpoint.

    Raises BadInput.
    """
    return run_codec_server(_server(settings, _origins((ui_url,)), encodes=True))


def _describe_access(server: CodecServer) -> str:
    if server.access.path:
        return "Keep it private. It is valid until this server stops."
    return "Requests need the token in WAYSTATION_CODEC_TOKEN."


def _server(settings: Settings, origins: frozenset[str], *, encodes: bool) -> CodecServer:
    codec = build_payload_codec(settings)
    if encodes and codec.key_id is None:
        raise BadInput("--encode needs a key: set WAYSTATION_KEY, and do not set WAYSTATION_ENCRYPT_PAYLOADS=false")
    if load_key_if_exists(settings) is None:
        raise BadInput("decryption needs a key: set WAYSTATION_KEY to the key of the workers")
    # A new one at every start: a program at our port while we do not run would receive the path from an open UI.
    path = "" if settings.codec_token is not None else secrets.token_hex(PATH_BYTES)
    return CodecServer(
        codec, CodecAccessPolicy(origins=origins, path=path, token=settings.codec_token, may_encrypt=encodes)
    )


def _ui_in_use(settings: Settings) -> tuple[str, ...]:
    ui_url = resolve_temporal_target(settings).ui_url
    return (ui_url,) if ui_url else ()


def _origins(addresses: tuple[str, ...]) -> frozenset[str]:
    """Return the origins that browsers send for pages of these addresses.

    This machine has two names, and a person may use either.
    """
    found: set[str] = set()
    for address in addresses:
        parts = urlsplit(address)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BadInput(f"--origin {address!r} is not a web address: write it like https://cloud.temporal.io")
        names = LOOPBACK_NAMES if parts.hostname in LOOPBACK_NAMES else (parts.hostname,)
        port = f":{parts.port}" if parts.port else ""
        found |= {f"{parts.scheme}://{name}{port}" for name in names}
    return frozenset(found)
