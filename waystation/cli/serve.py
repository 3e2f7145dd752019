"""`waystation serve`: web pages, an HTTP API and an MCP server; `waystation mcp`: the MCP server over standard streams;
`waystation keys`: API keys of remote clients; `waystation secrets`: secrets that are sent to tool servers.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from getpass import getpass
from pathlib import Path
from secrets import token_hex
from socket import create_server, socket
from typing import TYPE_CHECKING, Annotated

import typer

from waystation.cli.console import print_json, print_message, print_text
from waystation.cli.options import JsonOption
from waystation.config.setting_types import parse_listen_address
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, WaystationError
from waystation.kernel.imports import pause_gc_for_imports
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.temporal_names import TOOL_SECRETS
from waystation.kernel.value import Value
from waystation.plugins.web.principals import (
    ApiKey,
    ApiKeyStore,
    AssistantPolicy,
    Authenticator,
    KeyRole,
    OpenIdConfig,
    OpenIdTokenVerifier,
    build_local_sign_in_url,
    generate_token,
)
from waystation.privacy.policy import VaultEntry
from waystation.workers.shutdown import INTERRUPTED, stop_on_signals

if TYPE_CHECKING:
    from waystation.plugins.web.site import SiteThread
    from waystation.privacy.vault_repository import SqlVault

LISTEN = "127.0.0.1:8520"
HERE = frozenset({"127.0.0.1", "localhost"})

app = typer.Typer()
keys = typer.Typer(no_args_is_help=True, help="Create, list and revoke API keys for `waystation serve`.")
app.add_typer(keys, name="keys")


@app.command()
def serve(
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Address to listen on; a host other than 127.0.0.1 needs --name.")
    ] = LISTEN,
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Public host name, with its port unless the port is 443; repeatable."),
    ] = None,
) -> None:
    """Serve the web pages, the HTTP API and MCP until Ctrl-C.

    Without --name, only this machine can connect. Anyone who has the printed link can do what you can, so keep it
    private; it changes at every start. With --name, people and programs sign in with API keys (`waystation keys`) or
    with tokens of an OpenID provider.
    """
    settings, listener, names = Settings(), parse_listen_address("--listen", listen), tuple(name or ())
    identities = build_authenticator(settings)
    if listener.host not in HERE and not names:
        raise BadInput(
            f"--listen {listen!r} accepts connections from other machines, so the server needs a public host name: add "
            "--name waystation.example.org, or use 127.0.0.1 through a tunnel, like `ssh -L 8520:127.0.0.1:8520`"
        )
    if names and not identities.has_identities:
        raise BadInput(
            "--name needs authentication: without it, anyone who can connect could spend budget and approve requests. "
            "Create an API key (`waystation keys make NAME --role read`), or set WAYSTATION_OIDC_ISSUER, "
            "WAYSTATION_OIDC_AUDIENCE and WAYSTATION_OIDC_JWKS"
        )
    # Bound before anything is loaded or printed: an address is only printed by the server that listens there.
    with _listening(listener.host, listener.port) as taken:
        asyncio.run(_serve(settings, identities, taken, names))


@asynccontextmanager
async def serve_pages(settings: Settings, failed: Callable[[str], None]) -> AsyncGenerator[str]:
    """Serve web pages in this process, for this machine alone, until the block ends; yields their address.

    If another process has the usual port, any free one is used. Nothing is loaded before the first connection.

    Args:
        settings: The settings; if they disable web pages, the address is empty.
        failed: Called with the reason if serving fails after the first connection.

    Raises:
        BadInput: A setting that OpenID needs is missing.
    """
    if not settings.pages:
        yield ""
        return
    identities, token = build_authenticator(settings), generate_token()

    async def serve_once_asked(listener: socket) -> None:
        await _connection_waits(listener)
        with pause_gc_for_imports():
            site_thread = await asyncio.to_thread(_site_thread)
        async with aclosing(site_thread(settings.replace(server=None), identities, listener, token)) as site:
            try:
                await site.wait_until_ended()
            except WaystationError as error:
                failed(str(error))

    with _usual_listener() as listener:
        serving = asyncio.create_task(serve_once_asked(listener))
        try:
            yield build_local_sign_in_url(int(listener.getsockname()[1]), token)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


async def _connection_waits(listener: socket) -> None:
    """Return when a client connects; the connection is left for others to accept."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(listener.fileno(), asked.set)
    try:
        await asked.wait()
    finally:
        loop.remove_reader(listener.fileno())


def _site_thread() -> "type[SiteThread]":
    from waystation.plugins.web.site import SiteThread  # noqa: PLC0415  it takes more than a second to load

    return SiteThread


def _usual_listener() -> socket:
    host, _, port = LISTEN.partition(":")
    try:
        return create_server((host, int(port)))
    except OSError:
        return create_server((host, 0))


def build_authenticator(settings: Settings) -> Authenticator:
    """Build the authenticator of a server with these settings.

    Raises BadInput if a setting that OpenID needs is missing.
    """
    openid = (settings.oidc_issuer, settings.oidc_audience, settings.oidc_jwks)
    if not any(openid):
        return Authenticator(_keys(settings))
    if not all(openid) or not (settings.oidc_jwks or "").startswith(("https://", "http://127.0.0.1:")):
        raise BadInput(
            "OpenID needs WAYSTATION_OIDC_ISSUER, WAYSTATION_OIDC_AUDIENCE and WAYSTATION_OIDC_JWKS: set all three, "
            "and write WAYSTATION_OIDC_JWKS as an https address"
        )
    wanted = OpenIdConfig(
        issuer=settings.oidc_issuer or "",
        audience=settings.oidc_audience or "",
        jwks=settings.oidc_jwks or "",
        tenant_claim=settings.oidc_tenant_claim,
        name_claim=settings.oidc_name_claim,
        role_claim=settings.oidc_role_claim,
    )
    return Authenticator(_keys(settings), OpenIdTokenVerifier(wanted))


def _keys(settings: Settings) -> ApiKeyStore:
    return ApiKeyStore(settings.home / "api-keys.json")


def _listening(host: str, port: int) -> socket:
    try:
        return create_server((host, port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise BadInput(
            f"cannot listen on {host}:{port} ({why}): stop the program that uses this port, or choose another --listen"
        ) from None


async def _serve(settings: Settings, identities: Authenticator, listener: socket, names: tuple[str, ...]) -> None:
    # These imports load FastAPI and the client's SDKs, which help should not wait for.
    with pause_gc_for_imports():
        from waystation.plugins.web.app import create_access_policy, format_assistant_endpoint, get_sign_in_url  # noqa: PLC0415
        from waystation.plugins.web.site import open_site_server  # noqa: PLC0415

    access = create_access_policy(int(listener.getsockname()[1]), names)
    async with open_site_server(settings, identities, access) as server:
        stop_on_signals()
        print_text(get_sign_in_url(access))
        if names:
            print_message("Press Ctrl-C to stop.")
        else:
            print_text(format_assistant_endpoint(access))
            print_message(
                "Open the first link in your browser, and keep it private. The second link is for assistants (MCP). "
                "Press Ctrl-C to stop."
            )
        await server.serve_until_cancelled(listener)
    print_message("Stopped.")


_CLIENT_NAME = compile_bounded(r"\A[a-z0-9][a-z0-9-]{0,59}\Z")
"""Same pattern as the setting `mcp_client`."""


@app.command("mcp")
def mcp(
    root: Annotated[
        list[Path] | None, typer.Option(metavar="FOLDER", help="Folder from which documents may be read; repeatable.")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the assistant; all its tasks share session mcp-NAME and one budget."
        ),
    ] = None,
) -> None:
    """Serve the Model Context Protocol to an assistant on standard input and output.

    Assistants start this command themselves: put `waystation mcp --root ~/papers` in their configuration.
    """
    settings = Settings()
    if client is not None:
        if not _CLIENT_NAME.fullmatch(client):
            raise BadInput(
                f"--client {client!r} is not a valid name: use up to 60 lower-case letters, digits and hyphens, "
                "beginning with a letter or digit"
            )
        settings = settings.replace(mcp_client=client)
    asyncio.run(_mcp(settings, root or []))


async def _mcp(settings: Settings, roots: list[Path]) -> None:
    # These imports load the SDKs, as above.
    with pause_gc_for_imports():
        from waystation.client import Client  # noqa: PLC0415
        from waystation.plugins.web.assistant_gateway import AssistantGateway  # noqa: PLC0415
        from waystation.plugins.web.mcp import AssistantServer  # noqa: PLC0415
        from waystation.workers.memory import MemoryReader  # noqa: PLC0415

    rights = AssistantPolicy.from_settings(settings, roots)
    # A thread waits for input and cannot be cancelled; no stored data suffers.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, INTERRUPTED)
    async with await Client.connect(settings) as known, aclosing(MemoryReader(settings)) as memory:
        try:
            await AssistantServer(AssistantGateway(known, settings, rights, memory)).run_stdio_async()
        except* BrokenPipeError:
            pass  # the client left before an answer, which is the same as an end of input


class ApiKeyJson(Value):
    """What `keys list` prints of a key."""

    id: str
    name: str
    tenant: str
    role: KeyRole
    made_at: datetime
    revoked_at: datetime | None


def _listed(key: ApiKey) -> ApiKeyJson:
    return ApiKeyJson(
        id=key.id, name=key.name, tenant=key.tenant, role=key.role, made_at=key.made_at, revoked_at=key.revoked_at
    )


class CreatedKeyJson(Value):
    """What `keys make` prints: the key itself, once."""

    id: str
    name: str
    tenant: str
    role: KeyRole
    key: str


@keys.command()
def make(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's user; audits show it as verified.")],
    role: Annotated[
        KeyRole,
        typer.Option(
            metavar="ROLE",
            help="read, submit (and steer tasks), approve (and everything else) or assistant (only MCP).",
        ),
    ] = "read",
    tenant: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Tenant that the key gives access to; default: WAYSTATION_TENANT."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create an API key and print it. Only its hash is stored."""
    settings = Settings()
    if not 1 <= len(name.strip()) <= 100 or not name.strip().isprintable():
        raise BadInput("NAME must be one line of 1 to 100 printable characters")
    made, opened = _keys(settings).create_key(name.strip(), tenant or settings.tenant, role, utc_now())
    if as_json:
        print_json(CreatedKeyJson(id=made.id, name=made.name, tenant=made.tenant, role=made.role, key=opened))
        return
    print_text(opened)
    may = "use MCP" if made.role == "assistant" else made.role
    print_message(
        f"Key {made.id}: {made.name} may {may} in tenant {made.tenant}. The key is shown only once. To revoke it: "
        f"`waystation keys revoke {made.id}`"
    )


@keys.command("list")
def list_keys(as_json: JsonOption = False) -> None:
    """List the API keys, without the keys themselves."""
    found = _keys(Settings()).list_keys()
    if as_json:
        print_json([_listed(key) for key in found])
        return
    for key in found:
        print_text(_line(key))
    if not found:
        print_message("No API keys: `waystation keys make NAME --role read` creates one")


def _line(key: ApiKey) -> str:
    ended = f", revoked {key.revoked_at.astimezone():%Y-%m-%d}" if key.revoked_at else ""
    return f"{key.id}  {key.role:<9}  {key.tenant}  {key.name} (created {key.made_at.astimezone():%Y-%m-%d}{ended})"


@keys.command()
def revoke(key: Annotated[str, typer.Argument(metavar="ID", help="Id of the key.")]) -> None:
    """Revoke an API key. Running servers reject it at once."""
    revoked = _keys(Settings()).revoke(key, utc_now())
    print_message(f"Revoked key {revoked.id} of {revoked.name}.")


# -------------------------------------------------------------------------------------------------------------- secrets

secrets_app = typer.Typer(
    name="secrets", help="Store, list and delete the encrypted secrets of tool servers.", no_args_is_help=True
)
app.add_typer(secrets_app)
MAX_SECRET_CHARACTERS = 10_000
"""Characters."""
_SECRET_NAME = compile_bounded(r"\A[A-Za-z_][A-Za-z0-9_]{0,99}\Z")
SecretArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the secret, as in ${secret:NAME}.")]


class StoredSecretJson(Value):
    """What `secrets list` prints of a secret: never its value."""

    name: str
    kept_at: datetime


@secrets_app.callback()
def _secrets() -> None:
    """Store, list and delete the encrypted secrets of tool servers."""


@secrets_app.command("set")
def set_secret(name: SecretArgument) -> None:
    """Store a secret, or replace it. The command asks for it without echo, or reads it from stdin.

    Running workers use the new value after a restart.
    """
    if not _SECRET_NAME.fullmatch(name):
        raise BadInput(
            f"{name!r} is not a valid name: use up to 100 letters, digits and underscores, not beginning with a digit"
        )
    asyncio.run(_keep(name, _typed(name)))
    print_message(
        f"Stored secret {name}. Refer to it as ${{secret:{name}}} in the config file of the tool servers. Running "
        "workers use it after a restart."
    )


@secrets_app.command("list")
def list_secrets(as_json: JsonOption = False) -> None:
    """List the names of the stored secrets, and when they were stored. Values are never shown."""
    kept = asyncio.run(_kept())
    if as_json:
        print_json([StoredSecretJson(name=name, kept_at=at) for name, at in kept.items()])
    elif kept:
        print_text("\n".join(f"{name}  stored {at.astimezone():%Y-%m-%d %H:%M %Z}" for name, at in kept.items()))
    else:
        print_message("No secrets: `waystation secrets set NAME` stores one")


@secrets_app.command("forget")
def forget_secret(name: SecretArgument) -> None:
    """Delete a secret. Running workers keep it until they stop."""
    if not asyncio.run(_forgotten(name)):
        raise BadInput(f"there is no secret {name!r}: `waystation secrets list` shows all names")
    print_message(f"Deleted secret {name}. Running workers keep it until they stop.")


@asynccontextmanager
async def _vault() -> AsyncGenerator["SqlVault"]:
    """Open the vault of this store. Raises BadInput if its key is missing."""
    from waystation.runtime.store_setup import build_store_vault, get_placeholder_key, open_store  # noqa: PLC0415  pages need no store to begin

    settings = Settings()
    async with aclosing(await open_store(settings)) as store:
        await get_placeholder_key(store, settings)
        yield build_store_vault(store, settings)


async def _keep(name: str, text: str) -> None:
    # The vault's other rows are found by a fingerprint of their value; equal secrets must not be recognisable.
    secret = VaultEntry(type="SECRET", placeholder=name, fingerprint=token_hex(32), text=text)
    async with _vault() as vault:
        await vault.replace_original(TOOL_SECRETS, secret)


async def _kept() -> Mapping[str, datetime]:
    async with _vault() as vault:
        return await vault.load_storage_times(TOOL_SECRETS)


async def _forgotten(name: str) -> bool:
    async with _vault() as vault:
        return await vault.delete_originals(TOOL_SECRETS, [name]) > 0


def _typed(name: str) -> str:
    """Read a secret unseen from the terminal, or from stdin without its final newline. Raises BadInput."""
    if sys.stdin.isatty():
        text = getpass(f"{name}: ")
    else:
        text = sys.stdin.read(MAX_SECRET_CHARACTERS + 2).removesuffix("\n").removesuffix("\r")
    if not text.strip() or len(text) > MAX_SECRET_CHARACTERS or "\0" in text:
        raise BadInput(
            f"a secret must have 1 to {MAX_SECRET_CHARACTERS:,} characters, not only spaces, and no NUL. Pass it on "
            "stdin, or type it at the prompt"
        )
    return text
