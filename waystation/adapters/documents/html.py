"""HTML to readable text: headings as `#` lines, links as `[text](address)`, list items and table rows on lines.

The breaks that the markup asks for are marked in the tree, then the text is taken out and laid out by the marks.
"""

import warnings
from collections.abc import Iterable

from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.element import NavigableString, PreformattedString
from bs4.exceptions import ParserRejectedMarkup

from waystation.patterns import proven

_SPACES = proven(r"\s+")
_DROPPED = ["script", "style", "noscript", "template", "svg", "iframe"]
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = [
    *("address", "article", "aside", "blockquote", "caption", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
    *("summary", "table", "title", "ul"),
]
_TIGHT = "td p, td div, th p, th div, li > p:first-child"
"""Blocks that would part a row or an item from its marker."""

# Private-use characters, which no page has a meaning for.
_PARAGRAPH, _LINE, _KEPT_LINE, _KEPT_SPACE = "\ue000", "\ue001", "\ue002", "\ue003"


def html_to_text(html: str) -> str:
    """The text that a reader of the page sees. Broken markup gives what text it can."""
    soup = _parsed(html)
    for tag in soup.find_all(_DROPPED):
        tag.decompose()
    for tag in soup.select(_TIGHT):
        tag.insert_after(NavigableString(" "))
        tag.unwrap()
    _keep_preformatted(soup)
    _mark_links(soup)
    _mark_breaks(soup)
    return _laid_out(soup.get_text())


def _parsed(html: str) -> BeautifulSoup:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return BeautifulSoup(html, "html.parser")
        except ParserRejectedMarkup:
            # The one kind of markup that the parser refuses: a marked section without a proper name.
            return BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")


def _keep_preformatted(soup: BeautifulSoup) -> None:
    for pre in soup.find_all("pre"):
        for text in pre.find_all(string=True):
            if not isinstance(text, PreformattedString):
                text.replace_with(text.expandtabs(4).replace(" ", _KEPT_SPACE).replace("\n", _KEPT_LINE))


def _mark_links(soup: BeautifulSoup) -> None:
    for link in soup.find_all("a", href=True):
        address = str(link["href"])
        if link.get_text().strip() and not address.startswith(("#", "javascript:")):
            _surround(link, "[", f"]({address})")


def _mark_breaks(soup: BeautifulSoup) -> None:
    for tag in soup.find_all([*_BLOCKS, *_HEADINGS]):
        _surround(tag, _PARAGRAPH + _HEADINGS.get(tag.name, ""), _PARAGRAPH)
    for item in soup.find_all("li"):
        _surround(item, f"{_LINE}- ", _LINE)
    for row in soup.find_all("tr"):
        _surround(row, _LINE, _LINE)
    for cell in soup.find_all(["td", "th"]):
        if cell.find_next_sibling(["td", "th"]):
            cell.insert_after(NavigableString(" | "))
    for line_break in soup.select("td br, th br"):
        line_break.replace_with(" ")
    for line_break in soup.find_all("br"):
        line_break.insert_before(NavigableString(_LINE))


def _surround(tag: Tag, before: str, after: str) -> None:
    tag.insert_before(NavigableString(before))
    tag.insert_after(NavigableString(after))


def _laid_out(text: str) -> str:
    collapsed = _SPACES.sub(" ", text)
    paragraphs = ("\n".join(_stripped(part.split(_LINE))) for part in collapsed.split(_PARAGRAPH))
    laid_out = "\n\n".join(_stripped(paragraphs))
    return laid_out.replace(_KEPT_LINE, "\n").replace(_KEPT_SPACE, " ")


def _stripped(parts: Iterable[str]) -> list[str]:
    return [stripped for part in parts if (stripped := part.strip(f" {_KEPT_LINE}"))]
