"""Opens everything that one server serves: web pages, the HTTP API and the MCP server; also in a thread of its own."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from socket import socket
from typing import Any

from waystation.client import Client, OwnerClient
from waystation.config.settings import Settings
from waystation.plugins.web.access import AccessPolicy
from waystation.plugins.web.api import v1
from waystation.plugins.web.app import ServerDeps, SiteConfig, SiteServer, create_app
from waystation.plugins.web.assistant_gateway import AssistantGateway
from waystation.plugins.web.mcp import AssistantServer
from waystation.plugins.web.pages import pages, render_error_page
from waystation.plugins.web.principals import AssistantPolicy, Authenticator
from waystation.plugins.web.task_page import FOLDER
from waystation.workers.memory import MemoryReader


@asynccontextmanager
async def open_site_server(
    settings: Settings, identities: Authenticator, access: AccessPolicy
) -> AsyncGenerator[SiteServer]:
    """Open the server of these settings' tasks, before it serves anyone. What it opens is closed at the end.

    Args:
        settings: The settings.
        identities: Authenticates keys and tokens.
        access: Access policy of this run.

    Raises:
        BadInput, StoreError: The store cannot be opened.
        Unreachable: No Temporal server is known.
    """

    async def connected(tenant: str) -> Client:
        return await OwnerClient.connect(settings.replace(tenant=tenant))

    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(await connected(settings.tenant))
        # What assistants read is sent to a model: they get placeholders.
        for_models = await stack.enter_async_context(await Client.connect(settings))
        memory = await stack.enter_async_context(aclosing(MemoryReader(settings)))
        page = f"https://{access.names[0]}/tasks/" if access.names else f"http://127.0.0.1:{access.port}/tasks/"
        folders = AssistantPolicy.from_settings(settings)
        assistant = AssistantGateway(for_models, settings, folders, memory, page)
        site = SiteConfig(v1, pages, FOLDER / "static", render_error_page, AssistantServer(assistant))
        let_in = ServerDeps(access, identities, connected, memory, folders)
        yield SiteServer(create_app(site, client, settings.tenant, let_in))


class SiteThread:
    """The site in a thread with an event loop of its own: a slow page delays no worker."""

    def __init__(self, settings: Settings, identities: Authenticator, listener: socket, token: str) -> None:
        """Start opening the site. It closes the listener when it ends."""
        self._settings, self._identities, self._listener = settings, identities, listener
        self._access = AccessPolicy(token=token, port=int(listener.getsockname()[1]))
        self._stop = Future[Callable[[], object]]()
        """Stops the site, once it is open."""
        self._thread = ThreadPoolExecutor(1, "pages")
        self._ended = self._thread.submit(self._run)

    async def wait_until_ended(self) -> None:
        """Wait while it serves. Raises the error that ended it."""
        await asyncio.wrap_future(self._ended)

    async def aclose(self) -> None:
        """Stop it and wait until it has ended; if it is just being opened, that completes first."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        opened_or_ended: list[Future[Any]] = [self._stop, self._ended]
        wait(opened_or_ended, return_when=FIRST_COMPLETED)
        if self._stop.done():
            self._stop.result()()
        self._thread.shutdown()

    def _run(self) -> None:
        with self._listener:
            asyncio.run(self._serve())

    async def _serve(self) -> None:
        async with open_site_server(self._settings, self._identities, self._access) as server:
            serving, loop = (
                asyncio.create_task(server.serve_until_cancelled(self._listener)),
                asyncio.get_running_loop(),
            )

            def stop() -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(serving.cancel)

            self._stop.set_result(stop)
            await serving
