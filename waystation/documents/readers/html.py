"""Converts HTML to text as its reader sees it, with marks that change the meaning, and reports hidden text.

Also used for EPUB, e-mail, Word files (converted to HTML) and web pages. The tree is walked once, since changing it
gets slower the more siblings and ancestors there are: each element emits marks for the breaks and signs that it needs,
and the result is laid out by the marks.
"""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.element import CData, NavigableString, PageElement, RubyTextString, TemplateString
from bs4.exceptions import ParserRejectedMarkup

from waystation.documents.documents import SkippedItem
from waystation.documents.readers.number_formats import format_number
from waystation.documents.readers.styles import ElementStyle, StyleSheet
from waystation.kernel.patterns import compile_bounded

_SPACES = compile_bounded(r"\s+")
_DROPPED = frozenset({
    *("script", "style", "template", "metadata"),
    *("annotation", "annotation-xml"),  # of a formula: the same in another notation
    "rp",  # brackets around readings, which are written anyway
})  # fmt: skip
_NOT_SHOWN = frozenset({"noscript", "datalist"})
"""Not shown by programs that run scripts, or only suggested."""
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = frozenset({
    *("address", "article", "aside", "blockquote", "caption", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
    *("summary", "table", "title", "ul"),
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_GROUPS = frozenset({"thead", "tbody", "tfoot"})
_LISTS = frozenset({"ol", "ul", "menu", "dir"})
_TIGHT = frozenset({"p", "div"})
"""Blocks that would separate a row from its cells."""
_STRUCK = frozenset({"s", "strike", "del"})
_SHOWN = (NavigableString, CData, RubyTextString, TemplateString)
"""Comments and style sheets are strings of other types."""
_DRAWING_TEXTS = frozenset({"text", "title", "desc"})
_ONLY_USED = frozenset({"defs", "symbol", "clippath", "mask", "pattern", "marker"})
"""Parts of a drawing that are only visible where others refer to them."""
_PICTURES = frozenset({"img", "area"})
_MAX_FRAMES = 3
"""Maximum depth of pages within pages."""

# Noncharacters, which no text may contain.
_PARAGRAPH, _LINE, _KEPT_LINE, _KEPT_SPACE, _CELL = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3", "\ufdd4"
_ITEM, _ITEM_END, _STRIKE, _STRIKE_END = "\ufdd5", "\ufdd6", "\ufdd7", "\ufdd8"
_RAISED, _RAISED_END, _LOWERED, _LOWERED_END = "\ufdd9", "\ufdda", "\ufddb", "\ufddc"
LABEL, LABEL_END = "\ufddd", "\ufdde"
"""Around the number of a paragraph that came with its text; it precedes the number of a list."""
_FOREIGN = dict.fromkeys([*range(0xFDD0, 0xFDDD), 0xFDDF, 0xAD])
"""Marks that are not ours, and soft hyphens."""
_FOREIGN_LABELS = dict.fromkeys([0xFDDD, 0xFDDE])
_ON_ONE_LINE = dict.fromkeys(map(ord, (_PARAGRAPH, _LINE, _KEPT_LINE, _KEPT_SPACE, _CELL)), " ") | dict.fromkeys(
    map(ord, (_ITEM, _ITEM_END, LABEL, LABEL_END))
)
_ENDS = {_STRIKE: _STRIKE_END, _RAISED: _RAISED_END, _LOWERED: _LOWERED_END}
_MARK = compile_bounded(f"([{_STRIKE}{_STRIKE_END}{_RAISED}{_RAISED_END}{_LOWERED}{_LOWERED_END}])")
_BETWEEN_CELLS = compile_bounded(f" ?{_CELL} ?")
_STARTS_ITEM = compile_bounded(f"{_ITEM}([^{_ITEM}{_ITEM_END}]*+){_ITEM_END}")
_HEADING_SIGN = compile_bounded(r"#{1,6} ")
_LABELLED = compile_bounded(f"{LABEL}([^{LABEL}{LABEL_END}]*+){LABEL_END}")

_MAX_REPEATED = 100_000
"""Maximum cells of a table that repeat one above or next to them."""
_REPEATED_CHARACTERS = 100
"""Maximum characters of a repeated cell; a longer one is only written where it begins."""
_REPEATED_PIECES = 200
"""Maximum elements and texts that are examined in a repeated cell or another element."""
_MAX_SPAN = 1_000


class VisibleText(NamedTuple):
    """The text of a page that its reader sees, and how much hidden text was left out."""

    text: str
    hidden: SkippedItem | None = None


def read_html(html: str, styles: Sequence[str] = (), *, labelled: bool = False) -> VisibleText:
    """Return the text that a reader of the page sees. Broken markup gives as much text as possible.

    Headings become `#` lines, links `[text](address)`, list items and table rows lines. Raised text becomes `10^6`,
    lowered `CO₂` or `x_i`, struck-out text `~~…~~`; items of numbered lists keep their numbers; a cell over several
    rows or columns is repeated in each. Columns that only contain signs for their neighbour (`$`, `%`), or nothing, are
    merged into it: company reports have two of these for each column of figures. A picture becomes `[image: …]` with
    its alternative text, an SVG drawing the lines of its texts; a reading of characters follows them in brackets.

    Args:
        html: the page.
        styles: style sheets besides those in it.
        labelled: whether it contains numbers of paragraphs between `LABEL` and `LABEL_END`.
    """
    soup = _parsed(html)
    walk = _Walk(soup, _styles(soup, styles), labelled=labelled)
    return VisibleText(_laid_out("".join(walk.pieces)), _hidden(walk.hidden))


def _styles(soup: BeautifulSoup, more: Sequence[str] = ()) -> StyleSheet:
    own = (tag.get_text() for tag in soup.find_all("style"))
    return StyleSheet([*more, *(text.replace("<![CDATA[", "").replace("]]>", "") for text in own)])


def _hidden(words: Sequence[int]) -> SkippedItem | None:
    if not words:
        return None
    passages = f"{len(words):,} passage{'s' * (len(words) > 1)}"
    counted = f"{sum(words):,} word{'s' * (sum(words) > 1)}"
    return SkippedItem(name="hidden text", reason=f"{passages} ({counted}) that readers of the document do not see")


_PREFIX = "svg:"
"""Prefix of elements of drawings in books."""


class _Soup(BeautifulSoup):
    """Closes elements that HTML lets stay open: items, rows and cells end where the next one begins."""

    _IMPLIED: Mapping[str, tuple[frozenset[str], frozenset[str]]] = {
        "li": (frozenset({"li"}), _LISTS),
        "tr": (frozenset({"tr"}), frozenset({"table", *_GROUPS})),
        **dict.fromkeys(_CELLS, (_CELLS, frozenset({"table", "tr", *_GROUPS}))),
        **dict.fromkeys(_GROUPS, (_GROUPS, frozenset({"table"}))),
        **dict.fromkeys(("rt", "rp"), (frozenset({"rt", "rp"}), frozenset({"ruby"}))),
        "option": (frozenset({"option"}), frozenset({"select", "optgroup", "datalist"})),
        "optgroup": (frozenset({"optgroup"}), frozenset({"select"})),
    }
    """By element: those that it ends, and those within which it does not."""
    _FAR = 20
    """Maximum ancestors that are examined."""

    def handle_starttag(self, name: str, *args: object, **kwargs: object) -> Tag | None:
        """See `BeautifulSoup`."""
        name = name.removeprefix(_PREFIX)
        ended, bounds = self._IMPLIED.get(name, (frozenset(), frozenset()))
        at: Tag | None = self.currentTag if ended else None
        for _ in range(self._FAR):
            if at is None or at.name in bounds:
                break
            if at.name in ended:
                self.handle_endtag(at.name)
                break
            at = at.parent
        return super().handle_starttag(name, *args, **kwargs)  # pyright: ignore[reportArgumentType] passed on as is

    def handle_endtag(self, name: str, nsprefix: str | None = None) -> None:
        """See `BeautifulSoup`."""
        super().handle_endtag(name.removeprefix(_PREFIX), nsprefix)


def _parsed(html: str) -> BeautifulSoup:
    # The parser searches for the end of each comment up to the end of the page.
    end = html.rfind("-->") + 1
    html = html[:end] + html[end:].replace("<!--", "&lt;!--")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return _Soup(html, "html.parser")
        except ParserRejectedMarkup:
            # The only markup that the parser rejects: a marked section without a proper name.
            return _Soup(html.replace("<![", "&lt;!["), "html.parser")


class _Items:
    """The numbers of a list's items."""

    def __init__(self, tag: Tag, look: ElementStyle) -> None:
        self._numbered = tag.name == "ol" and look.list_style != "none"
        self._style = _LIST_STYLES.get(look.list_style or str(tag.get("type", "1")), "decimal")
        backwards = tag.has_attr("reversed")
        self._step = -1 if backwards else 1
        count = sum(isinstance(child, Tag) and child.name == "li" for child in tag.contents) if backwards else 1
        start = _whole(tag.get("start"))
        self._next = count if start is None else start

    def next_label(self, item: Tag) -> str:
        """Return the label of the next item."""
        value = _whole(item.get("value"))
        number = self._next if value is None else value
        self._next = number + self._step
        return f"{format_number(number, self._style)}. " if self._numbered else "- "


_LIST_STYLES = {
    **{"1": "decimal", "a": "lowerAlpha", "A": "upperAlpha", "i": "lowerRoman", "I": "upperRoman"},
    **{"lower-alpha": "lowerAlpha", "lower-latin": "lowerAlpha", "lower-roman": "lowerRoman"},
    **{"upper-alpha": "upperAlpha", "upper-latin": "upperAlpha", "upper-roman": "upperRoman"},
    "decimal-leading-zero": "decimalZero",
}


def _whole(value: object) -> int | None:
    text = str(value).strip() if value is not None else ""
    return int(text) if text.removeprefix("-").isdecimal() and len(text) < 10 else None


class _Around(NamedTuple):
    """Context of an element."""

    cell: bool = False
    """Within a table cell."""
    preformatted: bool = False
    invisible: bool = False
    tiny: bool = False
    """Of zero size."""
    items: _Items | None = None
    """Items of the enclosing list."""
    drawing: Literal["", "inline", "lines"] = ""
    """How the texts of a drawing are written: a single one, such as that of an icon, stays in its line."""
    unsaid: bool = False
    """In a drawing, but in none of its texts."""
    used: bool = False
    """In a part of a drawing that another part refers to."""


class _Link(NamedTuple):
    """A link that is open."""

    place: int
    """Index of its beginning among the pieces."""
    words_before: int
    address: str


class _CellEnd(NamedTuple):
    cell: Tag
    start: int
    """Index among the pieces."""


class _Again(NamedTuple):
    """A cell that extends into this position."""

    cell: Tag


class _Slot(NamedTuple):
    """What is next to a cell in its row: cells that extend there from above, and itself if it is wide."""

    before: list[Tag]
    behind: list[Tag]
    joint: str = _CELL
    """Separator from the cell before it."""


_Step = tuple[PageElement, _Around] | str | _Link | _CellEnd | _Again
"""An element with its context, text to write, or the end of something."""


class _Walk:
    """Walks a page from its beginning, without recursion: a page may be as deep as it is long."""

    def __init__(self, soup: BeautifulSoup, styles: StyleSheet, *, labelled: bool, frames: int = 0) -> None:
        self.pieces: list[str] = []
        """Texts and marks, in order."""
        self.hidden: list[int] = []
        """Number of words in each hidden passage."""
        self._styles = styles
        self._foreign = _FOREIGN if labelled else _FOREIGN | _FOREIGN_LABELS
        self._words = 0
        self._frames = frames
        """Number of pages around this one."""
        self._used = {str(use.get("href") or use.get("xlink:href") or "").removeprefix("#") for use in soup("use")}
        self._chosen: set[int] = set()
        """By identity, options that a list shows by default."""
        self._slots: dict[int, _Slot] = {}
        self._cells: dict[int, str] = {}
        """By identity, the text of cells that are repeated."""
        self._ahead: list[_Step] = [(soup, _Around())]
        while self._ahead:
            match self._ahead.pop():
                case str() as written:
                    self.pieces.append(written)
                case _Link() as link:
                    self._end(link)
                case _CellEnd(cell, start):
                    self._cells[id(cell)] = _shortened(self.pieces[start : start + _REPEATED_PIECES])
                case _Again(cell):
                    self.pieces.append(self._cells.get(id(cell), ""))
                case Tag() as tag, around:
                    self._enter(tag, around)
                case element, around:
                    self._write(element, around)

    def _enter(self, tag: Tag, around: _Around) -> None:
        if tag.name in _DROPPED and not tag.has_attr("shadowrootmode"):
            return
        look = self._styles.compute_style(tag)
        if _is_hidden(tag, look) or (around.drawing and self._is_unused(tag, around)):
            self._hide(tag)
            return
        if tag.name in _ALONE:
            self._write_alone(tag, around)
            return
        if tag.name == "table":
            self._slots |= _slots(tag, self._styles)
        if tag.name == "select":
            self._choose(tag)
        before, behind = _marks(tag, look, around)
        inside = _within(
            tag,
            around._replace(
                cell=around.cell or tag.name in _CELLS,
                preformatted=around.preformatted or tag.name == "pre",
                invisible=_is_invisible(tag, look, around),
                tiny=around.tiny if look.sized is None else not look.sized,
                items=_Items(tag, look) if tag.name in _LISTS else around.items,
            ),
        )
        self.pieces.append(before)
        self._ahead.append(behind)
        if id(tag) in self._slots:
            self._ahead.append(_CellEnd(tag, len(self.pieces)))
        address = tag.get("href", tag.get("xlink:href")) if tag.name == "a" else None
        if address is not None:
            self._ahead.append(_Link(len(self.pieces), self._words, str(address)))
            self.pieces.append("")
        self._ahead.extend(reversed([*self._inside(tag, inside)]))

    def _write_alone(self, tag: Tag, around: _Around) -> None:
        """Write an element whose visible text is not that of its contents."""
        if tag.name == "br":
            self.pieces.append(" " if around.cell else _LINE)
        elif tag.name == "iframe":
            self._frame(str(tag.get("srcdoc", "")), around)
        elif tag.name == "option":
            self._option(tag, around)
        elif tag.name in _PICTURES or tag.get("type") == "image":
            self._picture(tag, around)
        else:
            self.pieces.append(_field(tag))

    def _picture(self, tag: Tag, around: _Around) -> None:
        text = _attribute(tag, "alt")
        # An element marked as decorative is next to one with the text.
        if not text or tag.get("aria-hidden") == "true" or tag.get("role") in {"presentation", "none"}:
            return
        if around.invisible:
            self.hidden.append(len(text.split()))
            return
        self._words += 1
        is_sign = not any(map(str.isalnum, text))
        self.pieces.append(text if is_sign else f"[image: {text.replace(']', ')').replace('[', '(')}]")

    def _frame(self, page: str, around: _Around) -> None:
        if not page.strip():
            return
        soup = _parsed(page)
        if self._frames >= _MAX_FRAMES or around.invisible:
            self._hide(soup)
            # Pages within it are not searched.
            self.hidden += [1] * ("srcdoc" in page.lower())
            return
        walk = _Walk(soup, _styles(soup), labelled=False, frames=self._frames + 1)
        self._words += 1
        self.pieces += [_PARAGRAPH, *walk.pieces, _PARAGRAPH]
        self.hidden += walk.hidden

    def _choose(self, select: Tag) -> None:
        """Record the option that is shown if none is marked: the first that can be chosen."""
        pieces = [*_first_pieces(select)]
        options = [piece for piece in pieces if isinstance(piece, Tag) and piece.name == "option"]
        is_list = select.has_attr("multiple") or (_whole(select.get("size")) or 0) > 1
        if is_list or len(pieces) == _REPEATED_PIECES or any(option.has_attr("selected") for option in options):
            return
        first = next((option for option in options if not option.has_attr("disabled")), None)
        self._chosen |= {id(first)} if first is not None else set()

    def _option(self, tag: Tag, around: _Around) -> None:
        is_chosen = tag.has_attr("selected") or id(tag) in self._chosen
        label = _attribute(tag, "label")
        if not label and not _says_anything(tag):
            return
        if around.invisible or around.tiny:
            self._hide(tag)
            return
        self.pieces.append(" [x] " if is_chosen else " [ ] ")
        self._words += 1
        self._ahead.append(" ")
        if label:
            self.pieces.append(label)
        else:
            self._ahead.extend((child, around) for child in reversed(tag.contents))

    def _is_unused(self, tag: Tag, around: _Around) -> bool:
        if tag.name not in _ONLY_USED or around.used:
            return False
        return not any(isinstance(piece, Tag) and str(piece.get("id")) in self._used for piece in _first_pieces(tag))

    def _inside(self, tag: Tag, around: _Around) -> Iterator[_Step]:
        """Yield the contents of an element, with the text to write between them."""
        if tag.name in _FORMULAS:
            yield from _formula(tag, around)
            return
        children = tag.contents
        if tag.name == "switch" and around.drawing:
            yield from self._first_of(children, around)
            return
        if tag.name == "li":
            yield from self._item(children, around)
            return
        any_cell = False
        for child in children:
            if (
                isinstance(child, Tag)
                and child.name in _CELLS
                and not _is_hidden(child, self._styles.compute_style(child))
            ):
                slot = self._slots.get(id(child), _Slot([], []))
                for above in slot.before:
                    yield from (_CELL if any_cell else "", _Again(above))
                    any_cell = True
                yield slot.joint if any_cell else ""
                yield child, around
                for other in slot.behind:
                    yield from (_CELL, _Again(other))
                any_cell = True
            else:
                yield child, around

    def _first_of(self, children: Sequence[PageElement], around: _Around) -> Iterator[_Step]:
        """Of several forms of a part of a drawing, yield the one that programs show; words only others have are
        counted.
        """
        first, *others = [child for child in children if isinstance(child, Tag)] or [None]
        if first is None:
            return
        yield first, around
        words = set(_first_words(first))
        for other in others:
            if other is not None and not words.issuperset(_first_words(other)):
                self._hide(other)

    def _item(self, children: Sequence[PageElement], around: _Around) -> Iterator[_Step]:
        first = next((child for child in children if isinstance(child, Tag)), None)
        for child in children:
            # A paragraph would separate an item from its marker.
            if (
                first is not None
                and child is first
                and first.name == "p"
                and not _is_hidden(first, self._styles.compute_style(first))
            ):
                yield from ((inner, around) for inner in first.contents)
                yield " "
            else:
                yield child, around

    def _end(self, link: _Link) -> None:
        if self._words > link.words_before and not link.address.startswith(("#", "javascript:")):
            self.pieces[link.place] = "["
            self.pieces.append(f"]({link.address})")

    def _write(self, element: PageElement, around: _Around) -> None:
        if type(element) not in _SHOWN:
            return
        text = str(element).translate(self._foreign)
        if around.invisible or around.tiny or around.unsaid:
            self.hidden += [len(text.split())] if text.strip() else []
            return
        if around.preformatted:
            text = text.expandtabs(4).replace(" ", _KEPT_SPACE).replace("\n", _KEPT_LINE)
        self._words += bool(text.strip())
        self.pieces.append(text)

    def _hide(self, tag: Tag) -> None:
        if words := len(tag.get_text(" ").split()):
            self.hidden.append(words)


_NONE = frozenset({"0", "0.0", "0%"})
_ALONE = frozenset({"br", "input", "iframe", "option", *_PICTURES})


def _within(tag: Tag, around: _Around) -> _Around:
    """Return the context inside an element, as far as it concerns drawings."""
    if tag.name == "svg" and not around.drawing:
        pieces = [*_first_pieces(tag)]
        texts = sum(isinstance(piece, Tag) and piece.name in _DRAWING_TEXTS for piece in pieces)
        is_short = texts < 2 and len(pieces) < _REPEATED_PIECES
        return around._replace(drawing="inline" if is_short else "lines", unsaid=True)
    if not around.drawing:
        return around
    if tag.name in _DRAWING_TEXTS:
        return around._replace(unsaid=False)
    if tag.name == "foreignobject" or tag.name in _BLOCKS or tag.name in _HEADINGS:
        return around._replace(drawing="", unsaid=False)
    if tag.name == "a":
        return around._replace(drawing="inline")
    return around._replace(used=True) if tag.name in _ONLY_USED else around


def _is_invisible(tag: Tag, look: ElementStyle, around: _Around) -> bool:
    if look.visible is not None:
        return not look.visible
    said = tag.get("visibility") if around.drawing else None
    return around.invisible if said is None else said in {"hidden", "collapse"}


def _attribute(tag: Tag, name: str) -> str:
    return " ".join(str(tag.get(name, "")).translate(_FOREIGN | _FOREIGN_LABELS).split())


def _first_words(tag: Tag) -> list[str]:
    return " ".join(piece for piece in _first_pieces(tag) if isinstance(piece, NavigableString)).split()


def _is_hidden(tag: Tag, look: ElementStyle) -> bool:
    if tag.name in _NOT_SHOWN:
        return True
    if (tag.name == "dialog" and not tag.has_attr("open")) or tag.has_attr("popover"):
        return look.shown is not True
    if tag.get("display") == "none" or tag.get("opacity") in _NONE:
        return look.shown is not True
    if tag.get("hidden", "until-found") != "until-found":
        return look.shown is not True
    if "katex-html" in (tag.get("class") or ()):
        return True  # the same as the formula before it
    # A formula that is drawn as a picture has its text in a hidden one.
    return look.shown is False and tag.find("math") is None


def _field(tag: Tag) -> str:
    """Return what a form field shows."""
    if tag.get("role") == "button":
        return ""
    kind = str(tag.get("type", "text")).lower()
    if kind in {"checkbox", "radio"}:
        return "[x] " if tag.has_attr("checked") else "[ ] "
    shows = {"text", "number", "email", "tel", "url", "search", "date", "time", "month", "week", "datetime-local"}
    return f" {_attribute(tag, 'value')} " if kind in shows else ""


def _marks(tag: Tag, look: ElementStyle, around: _Around) -> tuple[str, str]:
    """Return the breaks and signs that an element needs before and after it."""
    before, behind = _drawn_breaks(tag, around) if around.drawing else _breaks(tag, around)
    struck = tag.name in _STRUCK if look.struck is None else look.struck
    height = look.height or {"sup": _RAISED, "sub": _LOWERED}.get(tag.name, "")
    height = {"super": _RAISED, "sub": _LOWERED}.get(height, height if height in _ENDS else "")
    for mark in (_STRIKE if struck else "", height):
        if mark:
            before, behind = before + mark, _ENDS[mark] + behind
    return before, behind


def _breaks(tag: Tag, around: _Around) -> tuple[str, str]:
    name = tag.name
    if around.cell and name in _TIGHT:
        return "", " "
    if name in _BLOCKS or name in _HEADINGS:
        return _PARAGRAPH + _HEADINGS.get(name, ""), _PARAGRAPH
    if name == "li":
        label = around.items.next_label(tag) if around.items else "- "
        return f"{_LINE}{_ITEM}{label}{_ITEM_END}", _LINE
    if name == "rt" and _says_anything(tag):
        return "(", ")"
    if name == "optgroup" and (label := _attribute(tag, "label")):
        return f" {label}:", " "
    return (_LINE, _LINE) if name == "tr" else ("", "")


def _drawn_breaks(tag: Tag, around: _Around) -> tuple[str, str]:
    """Return those of an element of a drawing."""
    if tag.name in _DRAWING_TEXTS or (tag.name == "a" and around.unsaid):
        is_line = around.drawing == "lines" and not around.cell
        return (_LINE, _LINE) if is_line else (" ", " ")
    # Text with its own position begins a word, unless each letter has one.
    is_placed = tag.name == "tspan" and tag.has_attr("x") and len("".join(_first_words(tag))) > 1
    return (" ", "") if is_placed else ("", "") if around.unsaid else _breaks(tag, around)


_FORMULAS = {
    "msup": ("", _RAISED, _RAISED_END),
    "mover": ("", _RAISED, _RAISED_END),
    "msub": ("", _LOWERED, _LOWERED_END),
    "munder": ("", _LOWERED, _LOWERED_END),
    "msubsup": ("", _LOWERED, _LOWERED_END + _RAISED, _RAISED_END),
    "munderover": ("", _LOWERED, _LOWERED_END + _RAISED, _RAISED_END),
    "mfrac": ("(", ")/(", ")"),
    "msqrt": ("√(",),
    "mroot": ("(", ")^(1/", ")"),
}
"""Parts of a formula whose position is their meaning: signs before, between and after their elements."""


def _formula(tag: Tag, around: _Around) -> Iterator[_Step]:
    signs = _FORMULAS[tag.name]
    inner = [child for child in tag.contents if isinstance(child, Tag)]
    if tag.name == "msqrt":
        yield "√("
        yield from ((child, around) for child in inner)
        yield ")"
        return
    short = tag.name == "mfrac" and all(len(child.get_text(strip=True)) == 1 for child in inner)
    signs = ("", "/", "") if short else signs
    if inner and signs[0] == "" and not short and _is_compound(inner[0]):
        signs = ("(", f"){''.join(signs[1:2])}", *signs[2:])
    for place, child in enumerate(inner):
        yield signs[place] if place < len(signs) else ""
        yield child, around
    # If elements are missing, the rest of the signs follows, so that each beginning has its end.
    yield "".join(signs[len(inner) :])


def _is_compound(base: Tag) -> bool:
    """Whether a script next to it might be taken for that of its last character only."""
    pieces = [*_first_pieces(base)]
    text = "".join(piece.strip() for piece in pieces if isinstance(piece, NavigableString))
    fraction = any(isinstance(piece, Tag) and piece.name == "mfrac" for piece in pieces)
    return fraction or not (text.isalnum() or len(text) < 2 or (text[0] == "(" and text[-1] == ")"))


def _first_pieces(tag: Tag) -> Iterator[PageElement]:
    """Yield the first elements and texts in an element, including itself.

    The library's own traversals of an element get slower the deeper it is.
    """
    ahead: list[PageElement] = [tag]
    for _ in range(_REPEATED_PIECES):
        if not ahead:
            return
        at = ahead.pop()
        yield at
        if isinstance(at, Tag):
            ahead.extend(reversed(at.contents[:_REPEATED_PIECES]))


def _slots(table: Tag, styles: StyleSheet) -> dict[int, _Slot]:
    """Return by identity of its cells what is next to them, if any cell extends over several rows or columns."""
    groups = [*_row_groups(table, styles)]
    if not any(
        _span(cell, "rowspan") != 1 or _span(cell, "colspan") != 1 for rows in groups for row in rows for cell in row
    ):
        return {}
    placed = [[*_placed(rows)] for rows in groups]
    width = max((at + 1 for rows in placed for row in rows for at, _ in row.own), default=0)
    columns = _columns([row for rows in placed for row in rows], width)
    slots: dict[int, _Slot] = {}
    room = _MAX_REPEATED
    for row in (row for rows in placed for row in rows):
        at, before = 0, list[Tag]()
        last: _Slot | None = None
        speaking = [cell for _, cell in row.own if _says_anything(cell)]
        # Alone in its row, a wide cell belongs to no column: a title.
        title = speaking[0] if len(speaking) == 1 and not row.above else None
        cells = {**row.above, **dict(row.own)}
        own = dict(row.own)
        while at < width and room > 0:
            if at in own:
                cell, begin, at = own[at], at, at + 1
                last = slots[id(cell)] = _Slot(before, [], _joint(row.signs, columns, begin))
                before = []
                while at < width and at not in cells and at in row.wide:
                    again = cell is not title and columns[at] == at != columns[begin]
                    last.behind.extend([cell] if again else [])
                    at, room = at + 1, room - 1
            else:
                if at in row.above and columns[at] == at:
                    before.append(row.above[at])
                    room -= 1
                at += 1
        if last is not None:
            last.behind.extend(before)
    reused = {id(cell) for slot in slots.values() for cell in (*slot.before, *slot.behind)}
    return slots | {key: _Slot([], []) for key in reused if key not in slots}


def _columns(rows: Sequence["_Placed"], width: int) -> list[int]:
    """Return for each column of the grid the one that it is merged into: itself, or a neighbour."""
    left, right = set(range(1, width)), set(range(width - 1))
    for row in rows:
        for at, sign in row.signs.items():
            left -= set() if sign is not None and (not sign or sign in _CLOSING) else {at}
            right -= set() if at + 1 in row.wide or (sign is not None and (not sign or sign in _OPENING)) else {at}
        for at, cell in row.above.items():
            left -= set() if row.above.get(at - 1) is cell else {at}
            right -= set() if row.above.get(at + 1) is cell else {at}
    columns: list[int] = []
    for at in range(width):
        columns.append(columns[-1] if at in left else at + 1 if at in right and at + 1 not in left else at)
    return columns


def _joint(signs: Mapping[int, str | None], columns: Sequence[int], at: int) -> str:
    """Return the separator between the cell that begins in a column and the one before it."""
    if columns[at] < at:
        return ""
    return (" " if signs[at - 1] else "") if at and columns[at - 1] == at and at - 1 in signs else _CELL


_OPENING = frozenset({"$", "€", "£", "¥", "(", "$(", "-", "US$", "C$", "A$", "HK$", "R$", "CHF", "EUR", "USD", "GBP"})
_CLOSING = frozenset({")", "%", ")%", "% )", "%)", "€", "£", "¥", "pts", "bps", "pp", "x"})
_MAX_SIGN_CHARACTERS = 4
_SHOWING = frozenset({"img", "input", "math"})


def _sign(cell: Tag) -> str | None:
    """Return what a cell says if that is a sign or nothing; else None."""
    text = ""
    for piece in _first_pieces(cell):
        text += piece if isinstance(piece, _SHOWN) else ""
        if len(text.strip()) > _MAX_SIGN_CHARACTERS or (isinstance(piece, Tag) and piece.name in _SHOWING):
            return None
    sign = text.strip()
    return sign if not sign or sign in _OPENING or sign in _CLOSING else None


def _says_anything(cell: Tag) -> bool:
    return any(isinstance(piece, NavigableString) and piece.strip() for piece in _first_pieces(cell))


class _Placed(NamedTuple):
    """A row with its cells by column."""

    own: list[tuple[int, Tag]]
    above: dict[int, Tag]
    """Cells that extend here from above."""
    wide: set[int]
    """Columns into which a cell of the row extends from the left."""
    signs: dict[int, str | None]
    """By the column in which each cell begins; see `_sign`."""


def _row_groups(table: Tag, styles: StyleSheet) -> Iterator[list[list[Tag]]]:
    """Yield the cells of its rows, in groups that no cell extends beyond."""
    loose: list[Tag] = []
    for child in table.contents:
        if isinstance(child, Tag) and child.name == "tr":
            loose.append(child)
        elif isinstance(child, Tag) and child.name in _GROUPS:
            yield [_cells_of(row, styles) for row in child.contents if isinstance(row, Tag) and row.name == "tr"]
    yield [_cells_of(row, styles) for row in loose]


def _cells_of(row: Tag, styles: StyleSheet) -> list[Tag]:
    cells = (child for child in row.contents if isinstance(child, Tag) and child.name in _CELLS)
    return [cell for cell in cells if not _is_hidden(cell, styles.compute_style(cell))]


def _placed(rows: Sequence[Sequence[Tag]]) -> Iterator[_Placed]:
    pending: dict[int, tuple[Tag, int]] = {}
    for number, row in enumerate(rows):
        above = {at: cell for at, (cell, _) in pending.items()}
        pending = {at: (cell, left - 1) for at, (cell, left) in pending.items() if left > 1}
        own: list[tuple[int, Tag]] = []
        wide: set[int] = set()
        at = 0
        for cell in row:
            while at in above:
                at += 1
            own.append((at, cell))
            columns, height = _span(cell, "colspan") or 1, _span(cell, "rowspan") or len(rows) - number
            for column in range(at, at + columns):
                wide |= {column} if column > at else set()
                if height > 1 and column not in above:
                    pending[column] = (cell, height - 1)
            at += columns
        yield _Placed(own, above, wide, {at: _sign(cell) for at, cell in own})


def _span(cell: Tag, name: str) -> int:
    value = _whole(cell.get(name))
    return 1 if value is None or value < 0 else min(value, _MAX_SPAN)


def _shortened(pieces: Iterable[str]) -> str:
    """Return the text of a cell on one line, without nested cells."""
    text = "".join(piece[: _REPEATED_CHARACTERS * 10] for piece in pieces)
    words = " ".join(_finished(_SPACES.sub(" ", text.translate(_ON_ONE_LINE))).split())
    return words if len(words) <= _REPEATED_CHARACTERS else f"{words[:_REPEATED_CHARACTERS]}…"


def _laid_out(text: str) -> str:
    collapsed = _SPACES.sub(" ", text)
    open_marks: list[str] = []
    paragraphs = ["\n".join(_stripped(_lines(part.split(_LINE), open_marks))) for part in collapsed.split(_PARAGRAPH)]
    laid_out = "\n\n".join(filter(None, paragraphs))
    return laid_out.replace(_KEPT_LINE, "\n").replace(_KEPT_SPACE, " ")


def _lines(lines: Iterable[str], open_marks: list[str]) -> Iterator[str]:
    """Yield finished lines. `open_marks`: marks that began on an earlier line, and end on this one or later."""
    for line in lines:
        begun = "".join(open_marks)
        sign = _HEADING_SIGN.match(line) if begun else None
        sign, line = (sign[0], line[sign.end() :]) if sign else ("", line)  # noqa: PLW2901 parted
        for mark in _MARK.findall(line):
            if mark in _ENDS:
                open_marks.append(mark)
            elif open_marks and _ENDS[open_marks[-1]] == mark:
                open_marks.pop()
        yield _item_line(_finished(sign + begun + line + "".join(_ENDS[mark] for mark in reversed(open_marks))))


def _item_line(line: str) -> str:
    """Return the line with the number of its item or paragraph; empty if nothing follows that."""
    item, label = _STARTS_ITEM.search(line), _LABELLED.search(line)
    if not item and not label:
        return line
    words = _LABELLED.sub("", _STARTS_ITEM.sub("", line)).strip()
    sign = _HEADING_SIGN.match(words)
    heading = sign[0] if sign else ""
    if label:
        number = f"{label[1]} " if label[1] else "- " if item else ""
        return f"{heading}{number}{words[len(heading) :]}"
    return f"{item[1]}{words}" if item and words else words


def _stripped(parts: Iterable[str]) -> list[str]:
    return [stripped for part in parts if (stripped := part.strip(f" {_KEPT_LINE}"))]


def _finished(line: str) -> str:
    """Replace the paired marks in a line by signs."""
    tokens = _MARK.split(line)
    texts: list[list[str]] = [[]]
    begun: list[str] = []
    for place, token in enumerate(tokens):
        if token in _ENDS:
            begun.append(token)
            texts.append([])
        elif begun and token == _ENDS[begun[-1]]:
            mark, inner = begun.pop(), "".join(texts.pop())
            before = next((text[-1] for text in reversed(texts[-1]) if text), "")
            behind = tokens[place + 1][:1] if place + 1 < len(tokens) else ""
            texts[-1].append(_signed(mark, inner, before, behind, struck=_STRIKE in begun))
        elif token not in _ENDS.values():
            texts[-1].append(token)
    return _BETWEEN_CELLS.sub(" | ", "".join(piece for text in texts for piece in text))


def _signed(mark: str, inner: str, before: str, behind: str, *, struck: bool) -> str:
    if mark == _STRIKE:
        return inner if struck else _BREAKS.sub(lambda part: format_strikethrough(part[0]), inner)
    core = inner.strip()
    if not core or _CELL in core:
        return inner
    written = format_superscript(core, before, behind) if mark == _RAISED else format_subscript(core, behind)
    return inner.replace(core, written)


_BREAKS = compile_bounded(f"[^{_CELL}{_KEPT_LINE}]++")


def format_strikethrough(text: str) -> str:
    """Mark text that was struck out."""
    core = text.strip(f" {_KEPT_SPACE}")
    return text.replace(core, f"~~{core}~~") if core else text


_ONE_SIGN = compile_bounded(r"[+\-\u2212]?\d++(?:[.,]\d++)?[+\-\u2212]?|[^\W\d_]++[+\-\u2212]?|[+\-\u2212]")
_ORDINALS = frozenset({"st", "nd", "rd", "th", "er", "re", "e", "ème", "o", "a", "os", "as"})
"""Endings of ordinal numbers, which mean the same raised or not."""
_NOTE_SIGNS = frozenset("[(®™℠*†‡§°º′″ªˢᵗ")
"""A raised text that begins with one of these means the same unraised: a footnote number, a trade mark."""
_LOW = str.maketrans("0123456789+-\u2212=()", "₀₁₂₃₄₅₆₇₈₉₊₋₋₌₍₎")


def format_superscript(text: str, before: str = "", behind: str = "") -> str:
    """Format text above the line, given the characters before and behind it: `^6`."""
    if text[0] in _NOTE_SIGNS or (before.isdecimal() and text.casefold() in _ORDINALS):
        return text
    return f"^{_grouped(text, behind)}"


def format_subscript(text: str, behind: str = "") -> str:
    """Format text below the line, given the character behind it: `₂`, `_i`."""
    low = text.translate(_LOW)
    return low if all(sign in "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎" for sign in low) else f"_{_grouped(text, behind)}"


def _grouped(text: str, behind: str) -> str:
    """Add brackets if it would not be clear what belongs to it."""
    runs_on = bool(behind) and ((behind.isdigit() and text[-1].isdigit()) or (behind.isalpha() and text[-1].isalpha()))
    return text if _ONE_SIGN.fullmatch(text) and not runs_on else f"({text})"
