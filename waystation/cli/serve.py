"""`waystation serve`: pages in the browser, an HTTP API and an MCP server, for this machine; `waystation mcp`: the
last of these, over standard streams.
"""

import asyncio
import os
import signal
from pathlib import Path
from socket import create_server, socket
from typing import Annotated

import typer

from waystation.cli.console import print_text, say
from waystation.domain.errors import BadInput
from waystation.imports import loading
from waystation.settings import Settings
from workers.health import address_of
from workers.shutdown import INTERRUPTED, stop_on_signals

LISTEN = "127.0.0.1:8520"

app = typer.Typer()


@app.command()
def serve(
    listen: Annotated[str, typer.Option(help="Host and port; the host is this machine's own, 127.0.0.1.")] = LISTEN,
) -> None:
    """Show tasks in the browser, answer their requests there, and offer all of it to programs, until Ctrl-C.

    Who has the address that is printed may do what you may: tell nobody. It is another one at every start.
    """
    listener = address_of("--listen", listen)
    if listener.host != "127.0.0.1":
        raise BadInput(
            f"--listen is {listen!r}: only 127.0.0.1 is served, since whoever has the address may spend and approve; "
            "reach it from elsewhere by a tunnel, like `ssh -L 8520:127.0.0.1:8520`"
        )
    # Taken before anything is loaded or told: an address is printed by the server that listens there.
    with _listening(listener.port) as taken:
        asyncio.run(_serve(Settings(), taken))


def _listening(port: int) -> socket:
    try:
        return create_server(("127.0.0.1", port))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise BadInput(
            f"--listen 127.0.0.1:{port} cannot be listened on ({why}): stop what does, or give another port"
        ) from None


async def _serve(settings: Settings, listener: socket) -> None:
    # FastAPI and the client's SDKs come with these imports: whoever asks for help should not wait for them.
    with loading():
        from waystation.client import Client  # noqa: PLC0415
        from waystation.serve.api import v1  # noqa: PLC0415
        from waystation.serve.app import Site, SiteServer  # noqa: PLC0415
        from waystation.serve.assistants import Assistant, AssistantRights  # noqa: PLC0415
        from waystation.serve.mcp import AssistantServer  # noqa: PLC0415
        from waystation.serve.pages import FOLDER, error_page, pages  # noqa: PLC0415

    port, rights = int(listener.getsockname()[1]), AssistantRights.of(settings)
    async with await Client.connect(settings) as client:
        assistant = Assistant(client, settings, rights, page=f"http://127.0.0.1:{port}/tasks/")
        site = Site(v1, pages, FOLDER / "static", error_page, AssistantServer(assistant))
        server = SiteServer(site, client, settings.tenant, port)
        stop_on_signals()
        print_text(server.address)
        print_text(server.assistants)
        say("Open the first in your browser, and tell nobody; the second is for an assistant (MCP). Ctrl-C stops.")
        await server.until_cancelled(listener)
    say("stopped")


@app.command("mcp")
def mcp(
    root: Annotated[
        list[Path] | None, typer.Option(help="Folder below which documents may be read; repeatable.")
    ] = None,
    client: Annotated[
        str | None,
        typer.Option(help="Name of the assistant: its tasks are session mcp-NAME, with a budget of its own."),
    ] = None,
) -> None:
    """Let an assistant hand work over by the Model Context Protocol, on standard input and output.

    Assistants start this themselves: `waystation mcp --root ~/papers` is what their configuration wants.
    """
    asyncio.run(_mcp(Settings() if client is None else Settings(mcp_client=client), root or []))


async def _mcp(settings: Settings, roots: list[Path]) -> None:
    # The SDKs come with these imports, as above.
    with loading():
        from waystation.client import Client  # noqa: PLC0415
        from waystation.serve.assistants import Assistant, AssistantRights  # noqa: PLC0415
        from waystation.serve.mcp import AssistantServer  # noqa: PLC0415

    rights = AssistantRights.of(settings, roots)
    # A thread waits for input and could not be cancelled; nothing that is kept suffers.
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, os._exit, INTERRUPTED)
    async with await Client.connect(settings) as known:
        await AssistantServer(Assistant(known, settings, rights)).run_stdio_async()
