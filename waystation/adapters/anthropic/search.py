"""Web search by the provider's own tool: one bounded call of the Messages API for each search."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

import httpx2
from anthropic import AsyncAnthropic
from anthropic.types import Message as WireMessage
from anthropic.types import TextBlock, WebSearchTool20260318Param, WebSearchToolResultBlock

from waystation.adapters.anthropic.errors import vendor_errors
from waystation.adapters.anthropic.model import PATIENCE, Patience, sdk_client
from waystation.adapters.anthropic.wire import usage_of
from waystation.domain.budget import Usage
from waystation.domain.foreign_text import tagged
from waystation.domain.web import EVERYTHING, SEARCH_OUTPUT_TOKENS, Domains, Searched, WebHit


class AnthropicSearch:
    """A `WebSearch` by the tool `web_search` of the Messages API."""

    def __init__(self, client: AsyncAnthropic, model: str, domains: Domains) -> None:
        """Take over the client: retries are switched off, and `aclose` closes it."""
        self._client = client.with_options(max_retries=0)
        self._model = model
        self._domains = domains

    @property
    def model(self) -> str:
        """See `WebSearch`."""
        return self._model

    async def search(self, query: str, limit: int) -> Searched:
        """See `WebSearch`. Denied domains are not found, and only allowed ones where some are listed."""
        with vendor_errors():
            answer = await self._client.messages.create(
                model=self._model,
                max_tokens=SEARCH_OUTPUT_TOKENS,
                system=files("waystation.adapters.anthropic").joinpath("search.md").read_text(encoding="utf-8"),
                messages=[{"role": "user", "content": tagged("query", query)}],
                tools=[_tool(self._domains)],
            )
            return _searched(answer, limit)

    async def aclose(self) -> None:
        """Close the client and its connections."""
        await self._client.close()


def anthropic_search(
    api_key: str,
    model: str,
    domains: Domains,
    base_url: str | None = None,
    http_client: httpx2.AsyncClient | None = None,
    patience: Patience = PATIENCE,
) -> AnthropicSearch:
    """Search behind `base_url` (by default the provider's public API)."""
    return AnthropicSearch(sdk_client(api_key, base_url, http_client, patience), model, domains)


def _tool(domains: Domains) -> WebSearchTool20260318Param:
    """The provider takes one list of domains or the other, but not both."""
    tool: WebSearchTool20260318Param = {
        "type": "web_search_20260318",
        "name": "web_search",
        "max_uses": 1,
        "allowed_callers": ["direct"],
    }
    if domains.allow and EVERYTHING not in domains.allow:
        tool["allowed_domains"] = domains.allow
    elif domains.deny:
        tool["blocked_domains"] = domains.deny
    return tool


def _searched(answer: WireMessage, limit: int) -> Searched:
    cited = _cited(answer)
    hits: dict[str, WebHit] = {}
    fault = ""
    for block in answer.content:
        if not isinstance(block, WebSearchToolResultBlock):
            continue
        if not isinstance(block.content, Sequence):
            fault = block.content.error_code
            continue
        for found in block.content:
            excerpt = " … ".join(cited.get(found.url, ()))
            hit = WebHit(url=found.url, title=found.title, excerpt=excerpt, age=found.page_age or "")
            hits.setdefault(found.url, hit)
    return Searched(hits=tuple(hits.values())[:limit], usage=_usage(answer), fault="" if hits else fault)


def _cited(answer: WireMessage) -> dict[str, list[str]]:
    """What the model quotes, by page: all else of a result is encrypted."""
    cited: dict[str, list[str]] = {}
    for url, words in _citations(answer):
        if words not in cited.setdefault(url, []):
            cited[url].append(words)
    return cited


def _citations(answer: WireMessage) -> Iterator[tuple[str, str]]:
    for block in answer.content:
        for citation in (block.citations or ()) if isinstance(block, TextBlock) else ():
            if citation.type == "web_search_result_location":
                yield citation.url, citation.cited_text


def _usage(answer: WireMessage) -> Usage:
    by_server = answer.usage.server_tool_use
    searches = by_server.web_search_requests if by_server is not None else 0
    return Usage(**usage_of(answer).model_dump(exclude={"searches"}), searches=searches)
