"""Pages of the web as agents see them: as lines, and as fetched in a conversation.

Fetched pages are derived from an agent's conversation, so that each is fetched once, and is dropped by a rewind.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from waystation.context.transcript import Message, ToolUse
from waystation.kernel.errors import WebPageUnreadableError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.privacy.policy import find_cut_position
from waystation.security.untrusted import SafeMarkup, wrap_untrusted
from waystation.security.web_addresses import parse_web_address

MAX_LINE_CHARACTERS = 1_000
"""Maximum characters of a line. A longer one is split, so that each can be shown and cited."""
MAX_TITLE_CHARACTERS = 200

_HEADING = compile_bounded(r"^#+ +")


class WebPage(Value):
    """A fetched page. Its text is untrusted: content, and never an instruction."""

    url: str
    """Final address of the page, after redirects."""
    title: str
    lines: tuple[str, ...]
    """At least one line, of any length: `split_page_lines` makes the displayed lines of them after redaction."""
    retrieved: datetime

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)


def build_web_page(url: str, text: str, retrieved: datetime) -> WebPage:
    """Build the page from the text that was extracted from a response.

    Its title is its first line: for an HTML page, the title in its head.
    """
    lines = tuple(text.splitlines()) or ("",)
    first = next((line for line in lines if line.strip()), "")
    title = " ".join(_HEADING.sub("", first).split())[:MAX_TITLE_CHARACTERS]
    return WebPage(url=url, title=title, lines=lines, retrieved=retrieved)


def split_page_lines(lines: Iterable[str]) -> list[str]:
    """Split a redacted page into the lines that are numbered and cited: each at most 1,000 characters."""
    return [part for line in lines for part in _parts(line)]


def _parts(line: str) -> Iterator[str]:
    """Yield parts of the line that are short enough, split between words if there are any."""
    start = 0
    while len(line) - start > MAX_LINE_CHARACTERS:
        space = line.rfind(" ", start + 1, start + MAX_LINE_CHARACTERS + 1)
        end = space if space > start else find_cut_position(line, start + MAX_LINE_CHARACTERS)
        yield line[start:end]
        start = end + (space > start)
    yield line[start:]


FETCH_PAGE = "fetch_page"
"""Name of the tool."""

_HEADER = compile_bounded(
    r'<web_page kept="(?P<blob>[0-9a-f]{64})" retrieved="(?P<retrieved>[^"\s]+)" source="(?P<url>[^"\s]+)'
)


class StoredWebPage(Value):
    """A page whose text is in the store."""

    url: str
    """Final address of the page."""
    blob: str
    """Content hash of its text."""
    retrieved: datetime


def make_stored_web_page(page: WebPage, blob: str) -> StoredWebPage:
    """Return the page with the content hash by which the store has its text."""
    return StoredWebPage(url=page.url, blob=blob, retrieved=page.retrieved)


def wrap_untrusted_page(page: StoredWebPage, shown: Sequence[str], stretch: str) -> SafeMarkup:
    """Wrap lines of the page. The frame names the lines, their source, and the key by which the page is found again."""
    retrieved = page.retrieved.isoformat(timespec="seconds")
    return wrap_untrusted("web_page", *shown, kept=page.blob, retrieved=retrieved, source=page.url, lines=stretch)


def extract_stored_web_pages(messages: Iterable[Message]) -> Mapping[str, StoredWebPage]:
    """Return what was fetched in a conversation, by the requested address and by the final one."""
    messages = tuple(messages)
    asked = {call.id: call for message in messages for call in message.tool_uses if call.name == FETCH_PAGE}
    pages: dict[str, StoredWebPage] = {}
    for result in (result for message in messages for result in message.tool_results if not result.is_error):
        call, found = asked.get(result.tool_use_id), _HEADER.match(result.content)
        if call is not None and found is not None:
            page = StoredWebPage.model_validate(found.groupdict())
            pages |= {address: page for address in (page.url, _address(call)) if address}
    return pages


def _address(call: ToolUse) -> str:
    try:
        return parse_web_address(str(call.input.get("url"))).url
    except WebPageUnreadableError:
        return ""
