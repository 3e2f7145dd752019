"""The pages that an agent has fetched, derived from its conversation: so that each is fetched once, and is taken back
with it.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from waystation.domain.errors import WebRefused
from waystation.domain.foreign_text import Tagged, tagged
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


def framed(page: KeptPage, shown: Sequence[str], stretch: str) -> Tagged:
    """Lines of the page. The frame says which, where they come from, and what the page is found again by."""
    retrieved = page.retrieved.isoformat(timespec="seconds")
    return tagged("web_page", *shown, kept=page.blob, retrieved=retrieved, source=page.url, lines=stretch)


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
