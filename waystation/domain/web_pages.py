"""The pages that an agent has fetched, derived from its conversation: so that each is fetched once, and is taken back
with it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from waystation.domain.errors import WebRefused
from waystation.domain.messages import Message, ToolUse
from waystation.domain.value import Value
from waystation.domain.web import WebPage, web_address
from waystation.patterns import proven

FETCH_PAGE = "fetch_page"
"""Name of the tool."""

_HEADER = proven(r'<web_page kept="(?P<blob>[0-9a-f]{64})" retrieved="(?P<retrieved>[^"\s]+)" source="(?P<url>[^"\s]+)')


class KeptPage(Value):
    """A page whose text is in the store."""

    url: str
    """Where it was in the end."""
    blob: str
    """Content hash of its text."""
    retrieved: datetime


def kept(page: WebPage, blob: str) -> KeptPage:
    """The page under the content hash by which the store has its text."""
    return KeptPage(url=page.url, blob=blob, retrieved=page.retrieved)


def header(page: KeptPage, first: int, last: int, lines: int) -> str:
    """The line above a stretch of the page. It says where that comes from, and what it is found again by."""
    return (
        f'<web_page kept="{page.blob}" retrieved="{page.retrieved.isoformat(timespec="seconds")}" '
        f'source="{page.url}" lines="{first}-{last} of {lines}">'
    )


def kept_pages(messages: Iterable[Message]) -> Mapping[str, KeptPage]:
    """What was fetched in a conversation, by the address as asked for and by the one where the page was."""
    messages = tuple(messages)
    asked = {call.id: call for message in messages for call in message.tool_uses if call.name == FETCH_PAGE}
    pages: dict[str, KeptPage] = {}
    for result in (result for message in messages for result in message.tool_results if not result.is_error):
        call, found = asked.get(result.tool_use_id), _HEADER.match(result.content)
        if call is not None and found is not None:
            page = KeptPage.model_validate(found.groupdict())
            pages |= {address: page for address in (page.url, _address(call)) if address}
    return pages


def _address(call: ToolUse) -> str:
    try:
        return web_address(str(call.input.get("url"))).url
    except WebRefused:
        return ""
