"""What agents' tools reach beyond the store, as the settings want it: tables, the web, tool servers."""

import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from waystation import __version__
from waystation.adapters.clock import utc_now
from waystation.adapters.prices.file import load_prices
from waystation.agents.metered_search import MeteredSearch
from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tools.fetch_page import FetchPage
from waystation.agents.tools.tool import Tool
from waystation.agents.tools.web_search import WebSearchTool
from waystation.domain.web import Domains
from waystation.ports import DocumentStore, Meter, TableEngine, ToolServers, TranscriptStore
from waystation.settings import Settings

USER_AGENT = f"Waystation/{__version__} (research agents; who runs them did not say how they are reached)"


@dataclass(frozen=True)
class Reach:
    """What the tools of one process reach."""

    tables: TableEngine
    web: Sequence[Tool] = ()
    servers: ToolServers | None = None


@dataclass(frozen=True)
class Ledgers:
    """Where pages are kept, and searches are charged; and what of both is shown."""

    texts: DocumentStore
    transcripts: TranscriptStore
    meter: Meter
    redacted: RedactedDocuments


@asynccontextmanager
async def opened_reach(settings: Settings, ledgers: Ledgers) -> AsyncGenerator[Reach]:
    """Opened where they are first used, closed at the end. Raises BadInput for a setting that cannot be used."""
    # DuckDB and the protocol of tool servers take a second to load.
    from waystation.adapters.tables.engine import DuckDbTables  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        web = _web(settings, ledgers, stack) if settings.web else ()
        yield Reach(DuckDbTables(), web, _servers(settings, stack))


def _web(settings: Settings, ledgers: Ledgers, stack: AsyncExitStack) -> Sequence[Tool]:
    from waystation.adapters.documents.bytes_reader import BytesReader  # noqa: PLC0415
    from waystation.adapters.web.fetch import FetchTerms, OwnFetch  # noqa: PLC0415

    domains = Domains(allow=settings.web_allow, deny=settings.web_deny, asks=settings.web_asks)
    reader = BytesReader()
    stack.push_async_callback(reader.aclose)
    terms = FetchTerms(
        user_agent=settings.web_user_agent or USER_AGENT, domains=domains, reachable=settings.web_reachable
    )
    pages = OwnFetch(reader, utc_now, terms)
    stack.push_async_callback(pages.aclose)
    fetch = FetchPage(pages, ledgers.texts, ledgers.redacted, domains)
    key = settings.anthropic_api_key
    if key is None:  # searches are made by the provider
        return (fetch,)
    return (_search(settings, key.get_secret_value(), domains, ledgers, stack), fetch)


def _search(settings: Settings, key: str, domains: Domains, ledgers: Ledgers, stack: AsyncExitStack) -> Tool:
    from waystation.adapters.anthropic.search import anthropic_search  # noqa: PLC0415
    from workers.models import patience_of  # noqa: PLC0415

    url, patience = settings.anthropic_base_url, patience_of(settings)
    search = anthropic_search(key, settings.web_search_model, domains, url, patience=patience)
    stack.push_async_callback(search.aclose)
    prices = load_prices(settings.prices)
    metered = MeteredSearch(search, ledgers.transcripts, utc_now, ledgers.meter, prices)
    return WebSearchTool(metered, ledgers.redacted.redactor, settings.web_asks)


def _servers(settings: Settings, stack: AsyncExitStack) -> ToolServers | None:
    if settings.tool_servers is None:
        return None
    from waystation.adapters.mcp.config import load_servers  # noqa: PLC0415
    from waystation.adapters.mcp.servers import McpServers  # noqa: PLC0415

    servers = McpServers(load_servers(settings.tool_servers, os.environ))
    stack.push_async_callback(servers.aclose)
    return servers
