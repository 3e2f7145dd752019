"""HTML to readable text: headings as `#` lines, links as `[text](address)`, list items and table rows on lines.

The tree is walked once, since changing it takes longer the more siblings and ancestors there are: each element gives
marks for the breaks that it asks for, and what comes of that is laid out by the marks.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.element import CData, NavigableString, PageElement
from bs4.exceptions import ParserRejectedMarkup

from waystation.patterns import proven

_SPACES = proven(r"\s+")
_DROPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe"})
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = frozenset({
    *("address", "article", "aside", "blockquote", "caption", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
    *("summary", "table", "title", "ul"),
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_TIGHT = frozenset({"p", "div"})
"""Blocks that would part a row from its cells."""
_SHOWN = (NavigableString, CData)
"""Comments and readings of rubies are strings of other types."""

# Private-use characters, which no page has a meaning for.
_PARAGRAPH, _LINE, _KEPT_LINE, _KEPT_SPACE = "\ue000", "\ue001", "\ue002", "\ue003"


class _Around(NamedTuple):
    """What an element stands in."""

    cell: bool = False
    """Of a table."""
    preformatted: bool = False


class _Link(NamedTuple):
    """A link that is open."""

    place: int
    """Of its beginning, among the pieces."""
    words_before: int
    address: str


_Step = tuple[PageElement, _Around] | str | _Link
"""An element with what it stands in, what is written, or a link that ends."""


def html_to_text(html: str) -> str:
    """The text that a reader of the page sees. Broken markup gives what text it can."""
    return _laid_out("".join(_Walk(_parsed(html)).pieces))


def _parsed(html: str) -> BeautifulSoup:
    # The parser looks for the end of each comment up to the end of the page.
    end = html.rfind("-->") + 1
    html = html[:end] + html[end:].replace("<!--", "&lt;!--")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return BeautifulSoup(html, "html.parser")
        except ParserRejectedMarkup:
            # The one kind of markup that the parser refuses: a marked section without a proper name.
            return BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")


class _Walk:
    """Goes through a page from its beginning, without recursion: a page may be as deep as it is long."""

    def __init__(self, soup: BeautifulSoup) -> None:
        self.pieces: list[str] = []
        """Texts and marks, in order."""
        self._words = 0
        self._ahead: list[_Step] = []
        self._enter(soup, _Around())
        while self._ahead:
            match self._ahead.pop():
                case str() as written:
                    self.pieces.append(written)
                case _Link() as link:
                    self._end(link)
                case Tag() as tag, around:
                    self._enter(tag, around)
                case element, around:
                    self._write(element, around)

    def _enter(self, tag: Tag, around: _Around) -> None:
        address = tag.get("href") if tag.name == "a" else None
        if address is not None:
            self._ahead.append(_Link(len(self.pieces), self._words, str(address)))
            self.pieces.append("")
        inside = _Around(around.cell or tag.name in _CELLS, around.preformatted or tag.name == "pre")
        self._ahead.extend(reversed([*_inside(tag, inside)]))

    def _end(self, link: _Link) -> None:
        if self._words > link.words_before and not link.address.startswith(("#", "javascript:")):
            self.pieces[link.place] = "["
            self.pieces.append(f"]({link.address})")

    def _write(self, element: PageElement, around: _Around) -> None:
        if type(element) not in _SHOWN:
            return
        text = str(element)
        if around.preformatted:
            text = text.expandtabs(4).replace(" ", _KEPT_SPACE).replace("\n", _KEPT_LINE)
        self._words += bool(text.strip())
        self.pieces.append(text)


def _inside(tag: Tag, around: _Around) -> Iterator[_Step]:
    """What is in an element, with the marks around each."""
    children = [child for child in tag.contents if not (isinstance(child, Tag) and child.name in _DROPPED)]
    elements = [child for child in children if isinstance(child, Tag)]
    last_cell = next((child for child in reversed(elements) if child.name in _CELLS), None)
    for child in children:
        if not isinstance(child, Tag):
            yield child, around
        elif child.name == "br":
            yield " " if around.cell else _LINE
        else:
            # It would part an item from its marker.
            tight = tag.name == "li" and child is elements[0] and child.name == "p"
            before, after = ("", " ") if tight else _marks(child.name, around)
            yield from (before, (child, around), after)
            if child.name in _CELLS and child is not last_cell:
                yield " | "


def _marks(name: str, around: _Around) -> tuple[str, str]:
    """The breaks that an element asks for, before and behind it."""
    if around.cell and name in _TIGHT:
        return "", " "
    if name in _BLOCKS or name in _HEADINGS:
        return _PARAGRAPH + _HEADINGS.get(name, ""), _PARAGRAPH
    return {"li": (f"{_LINE}- ", _LINE), "tr": (_LINE, _LINE)}.get(name, ("", ""))


def _laid_out(text: str) -> str:
    collapsed = _SPACES.sub(" ", text)
    paragraphs = ("\n".join(_stripped(part.split(_LINE))) for part in collapsed.split(_PARAGRAPH))
    laid_out = "\n\n".join(_stripped(paragraphs))
    return laid_out.replace(_KEPT_LINE, "\n").replace(_KEPT_SPACE, " ")


def _stripped(parts: Iterable[str]) -> list[str]:
    return [stripped for part in parts if (stripped := part.strip(f" {_KEPT_LINE}"))]
