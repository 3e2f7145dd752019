"""Markdown of reports: sanitised before it is stored, converted to blocks for export, and rendered as HTML.

Opening a sanitised report fetches nothing and runs nothing, and a link leads where it seems to: HTML, images and links
become text, each with its target. Code stays unchanged if it is code by the rules of CommonMark both without and with
tables, whose cells and rows end code.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import unescape
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from waystation.documents.citations import (
    CITATION_PATTERN,
    SENTENCE_MARK_PATTERN,
    parse_citations,
    render_unsupported_sentence_mark,
)
from waystation.documents.headings import find_heading
from waystation.kernel.errors import BadInput
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.reports.blocks import (
    CitationNumbering,
    CodeBlock,
    ExportedReport,
    HeadingBlock,
    Inline,
    ListBlock,
    NumberedSource,
    ParagraphBlock,
    QuoteBlock,
    ReportBlock,
    ReportMetadata,
    RuleBlock,
    SentenceRemark,
    StoredReport,
    TableBlock,
    render_citation_number,
)
from waystation.reports.sections import SOURCES
from waystation.security.untrusted import neutralize_markdown, replace_control_characters

_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_NOT_IN_ADDRESSES = frozenset("<\"`'\\|")
_MAX_ADDRESS_CHARACTERS = 2_000
_MAX_ENTITY_CHARACTERS = 40
_ENDING_CELLS = frozenset("|\n")
_ACTIVE = frozenset({"html_block", "html_inline", "image", "link_open"})
_AUTOMATIC = "autolink"
"""`<https://…>` shows its target, and is kept."""


def sanitize_markdown(markdown: str) -> str:
    """Return the same words without HTML, images, links behind other words, and characters that steer a terminal.

    A link `[word](https://a.example)` becomes `[word] (https://a.example)`.
    """
    text = replace_control_characters(markdown)
    tokens, defines = _parsed(text)
    once = _cleaned(text, _stretches(text, tokens), "(:[" if defines else "(")
    if not any(_is_active(token) for tables in (False, True) for token in _all(_parsed(once, tables=tables)[0])):
        return once
    # Something harmless, such as an invalid address, may have become active.
    return _cleaned(once, [_Stretch(0, once.count("\n") + 1, code=False)], "(:[")


def build_safe_markdown_parser() -> MarkdownIt:
    """Build a parser for sanitised text: no HTML and no images, whatever was inserted since."""
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


class _Stretch(NamedTuple):
    """Lines from `first` to before `end` that are parsed together: a paragraph, or a block of code."""

    first: int
    end: int
    code: bool


def _parsed(text: str, *, tables: bool = False) -> tuple[Sequence[Token], bool]:
    """Parse the text into blocks, and return whether it has link reference definitions."""
    found: dict[str, object] = {}
    reader = MarkdownIt("commonmark")
    return (reader.enable("table") if tables else reader).parse(text, found), bool(found.get("references"))


def _all(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from token.children or ()


def _is_active(token: Token) -> bool:
    return token.type in _ACTIVE and token.markup != _AUTOMATIC


def _stretches(text: str, tokens: Iterable[Token]) -> Iterator[_Stretch]:
    """Yield ranges that cover all lines of the text, in order."""
    found: dict[int, _Stretch] = {}
    for token in tokens:
        if token.map is not None and (_is_code(token) or token.type == "inline"):
            found.setdefault(token.map[0], _Stretch(*token.map, code=_is_code(token)))
    line, end = 0, text.count("\n") + 1
    while line < end:
        stretch = found.get(line) or _Stretch(line, line + 1, code=False)
        yield stretch
        line = max(line + 1, stretch.end)


def _is_code(token: Token) -> bool:
    return token.type in {"fence", "code_block"}


def _cleaned(text: str, stretches: Iterable[_Stretch], linking: str) -> str:
    """Clean all ranges that are not code.

    `linking`: characters that make a link of a bracket that closes before them.
    """
    lines = text.split("\n")
    parts = (
        ("\n".join(lines[stretch.first : max(stretch.end, stretch.first + 1)]), stretch.code) for stretch in stretches
    )
    return "\n".join(part if code else _harmless(part, linking) for part, code in parts)


def _harmless(text: str, linking: str) -> str:
    """Clean a range without code blocks.

    If code for one parser ends at a table cell for another, nothing counts as code.
    """
    pieces = list(_pieces(text, linking, _closing_runs(text)))
    if _may_have_cells(text) and any(piece[0] == "`" and not _ENDING_CELLS.isdisjoint(piece) for piece in pieces):
        pieces = list(_pieces(text, linking, {}))
    return "".join(pieces)


def _pieces(text: str, linking: str, closing: Mapping[int, int]) -> Iterator[str]:
    """Yield the cleaned range from left to right, so that the result is parsed as it was here."""
    place = 0
    while place < len(text):
        sign = text[place]
        if sign == "\\" and text[place + 1 : place + 2] in _PUNCTUATION:
            end = place + 2
            yield text[place:end]
        elif sign == "`":
            end = closing.get(place) or place + _run(text, place)
            yield text[place:end]
        elif sign == "<" and (end := _end_of_placeholder(text, place) or _end_of_address(text, place)):
            yield text[place:end]
        elif sign == "&" and (end := _end_of_steering(text, place)):
            yield f"&amp;{text[place + 1 : end]}"
        else:
            end = place + 1
            yield _neutralize(sign, text[end : end + 1], linking)
        place = end


def _may_have_cells(text: str) -> bool:
    return any(sign in text for sign in ("|", ":-", "-:"))


def _neutralize(sign: str, after: str, linking: str) -> str:
    if sign == "<" and (after.isalpha() or after in {"/", "!", "?"}):
        return "&lt;"
    return "] " if sign == "]" and after and after in linking else sign


def _end_of_placeholder(text: str, place: int) -> int:
    """Return the position after `<PERSON_7f3a2c91d04e>`, which is not HTML because of its underscore; 0 if there is
    none.
    """
    found = PLACEHOLDER_PATTERN.match(text, place)
    return found.end() if found else 0


def _end_of_steering(text: str, place: int) -> int:
    """Return the position after `&#x202e;`, which is a steering character once decoded; 0 if there is none."""
    end = text.find(";", place, place + _MAX_ENTITY_CHARACTERS) + 1
    sign = unescape(text[place:end])
    return end if sign != replace_control_characters(sign) else 0


def _end_of_address(text: str, place: int) -> int:
    """Return the position after `<https://…>`, which shows where it leads; 0 if there is none."""
    if not text[place + 1 : place + 9].lower().startswith(("http://", "https://")):
        return 0
    for end in range(place + 1, min(len(text), place + _MAX_ADDRESS_CHARACTERS)):
        if text[end] == ">":
            return end + 1
        if text[end] in _NOT_IN_ADDRESSES or text[end].isspace():
            return 0
    return 0


def _run(text: str, place: int) -> int:
    end = place
    while text[end : end + 1] == "`":
        end += 1
    return end - place


def _closing_runs(text: str) -> dict[int, int]:
    """Map the start of each run of backticks that opens code to the end of the code: the next run of that length."""
    runs: list[tuple[int, int]] = []
    place = text.find("`")
    while place >= 0:
        runs.append((place, length := _run(text, place)))
        place = text.find("`", place + length)
    ends: dict[int, int] = {}
    next_of_length: dict[int, int] = {}
    for begin, length in reversed(runs):
        if length in next_of_length:
            ends[begin] = next_of_length[length]
        next_of_length[length] = begin + length
    return ends


_CONTAINERS = frozenset({"blockquote", "bullet_list", "ordered_list"})
_LEADING_OUT = ("http://", "https://", "mailto:")
_MAX_DEPTH, _MAX_PARSED_DEPTH = 8, 100
"""Maximum depth of nested blocks: deeper ones are moved to that depth, and implausibly deep ones are read as not
indented.
"""
_MAX_INDENT = 60
_INDENTS = " >-*+.)0123456789"
"""Characters that open nested blocks at the beginning of a line."""
_UNTITLED = "Report"


def build_report_export(stored: StoredReport, imprint: ReportMetadata) -> ExportedReport:
    """Build the report in blocks, with numbered citations. Its first heading is its title."""
    numbering = CitationNumbering(stored)
    reader = _Reader(_citing_reader(), numbering)
    blocks = reader.blocks(stored.body)
    titles = (one for one in blocks if isinstance(one, HeadingBlock) and one.level == 1)
    title = next(titles, None)
    return ExportedReport(
        title=_UNTITLED if title is None else "".join(one.text for one in title.inlines).strip() or _UNTITLED,
        imprint=imprint,
        blocks=tuple(one for one in blocks if one is not title and not _repeats_title(one, title)),
        checked=stored.checked,
        account=reader.blocks(stored.account),
        sources=numbering.build_sources(),
        remarks=tuple(SentenceRemark(number=number, text=text) for number, text in stored.remarks.items()),
    )


def _repeats_title(block: ReportBlock, title: HeadingBlock | None) -> bool:
    """Whether the block is the question, and the title has stated it already."""
    if title is None or not isinstance(block, ParagraphBlock):
        return False
    said, titled = ["".join(one.text for one in part.inlines).strip() for part in (block, title)]
    return said == f"Question. {titled}"


def render_numbered_markdown(stored: StoredReport, report: ExportedReport) -> str:
    """Render the report as Markdown for export: numbered citations, and the list of sources after what agents wrote.

    It is sanitised again, since placeholders may have been restored.
    """
    shown = {
        f"[{one.document}:{one.first_line}-{one.last_line}]": render_citation_number(one) for one in report.sources
    }
    above, mark, below = f"\n{stored.body}".partition("\n# ")
    title, _, rest = below.partition("\n")
    pieces = [above.strip(), f"# {title}" if mark else "", f"*{report.imprint}*", _renumbered(rest.strip(), shown)]
    if report.sources or report.checked:
        lines = [
            f"- {render_citation_number(one)} {_plain_name(one)}{f': {one.fault}' if one.fault else ''}"
            for one in report.sources
        ]
        remarks = (
            f"- {render_unsupported_sentence_mark(one.number)} {_without_emphasis(one.text)}" for one in report.remarks
        )
        parts = [SOURCES, report.checked, "\n".join(remarks), "\n".join(lines)]
        pieces.append("\n\n".join(filter(None, parts)))
    pieces.append(_renumbered(stored.account, shown))
    return sanitize_markdown("\n\n".join(filter(None, pieces)) + "\n")


def _plain_name(source: NumberedSource) -> str:
    return _without_emphasis(neutralize_markdown(f"{source.name}, {source.where}"))


def _without_emphasis(text: str) -> str:
    return text.replace("__", "\\_\\_").replace("*", "\\*")


def _renumbered(markdown: str, shown: Mapping[str, str]) -> str:
    return CITATION_PATTERN.sub(lambda match: shown.get(match[0], match[0]), markdown)


def _citing_reader() -> MarkdownIt:
    """Build a CommonMark parser with tables and citations, whose names are not emphasis: `[a/__init__.py:1-2]`."""
    reader = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_PARSED_DEPTH}).enable("table")
    reader.inline.ruler.before("link", "citation", _read_citation)
    return reader


def _read_citation(state: StateInline, silent: bool) -> bool:
    match = CITATION_PATTERN.match(state.src, state.pos)
    if match is None:
        return False
    mark = SENTENCE_MARK_PATTERN.match(state.src, match.end())
    if not silent:
        state.push("citation", "", 0).content = match[0]
        if mark is not None:
            state.push("sentence_mark", "", 0).content = mark[0]
    state.pos = mark.end() if mark is not None else match.end()
    return True


def _less_indented(line: str) -> str:
    line = line.expandtabs(4)
    words = line.lstrip(_INDENTS)
    return words if words and len(line) - len(words) > _MAX_INDENT else line


@dataclass(frozen=True)
class _Reader:
    """Converts Markdown to blocks."""

    markdown: MarkdownIt
    numbering: CitationNumbering

    def blocks(self, text: str) -> tuple[ReportBlock, ...]:
        tokens = self.markdown.parse(replace_control_characters(text))
        if any(token.level >= _MAX_PARSED_DEPTH - 1 for token in tokens):
            # Otherwise the parser drops what is nested deeper, and everything after it.
            tokens = self.markdown.parse("\n".join(map(_less_indented, replace_control_characters(text).split("\n"))))
        return self._blocks(SyntaxTreeNode(tokens).children, 0)

    def _blocks(self, nodes: Iterable[SyntaxTreeNode], depth: int) -> tuple[ReportBlock, ...]:
        return tuple(block for node in nodes for block in self._block(node, depth))

    def _block(self, node: SyntaxTreeNode, depth: int) -> tuple[ReportBlock, ...]:
        if node.type in _CONTAINERS:
            return self._container(node, depth)
        block = self._leaf(node)
        return () if block is None else (block,)

    def _container(self, node: SyntaxTreeNode, depth: int) -> tuple[ReportBlock, ...]:
        quotes = node.type == "blockquote"
        parts = [node] if quotes else node.children
        inner = tuple(self._blocks(part.children, depth + 1) for part in parts)
        if depth >= _MAX_DEPTH:
            return tuple(block for blocks in inner for block in blocks)
        if quotes:
            return (QuoteBlock(blocks=inner[0]),)
        return (ListBlock(first=int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None, items=inner),)

    def _leaf(self, node: SyntaxTreeNode) -> ReportBlock | None:
        match node.type:
            case "paragraph":
                return ParagraphBlock(inlines=self._inlines(node))
            case "heading":
                return HeadingBlock(level=int(node.tag[1:]), inlines=self._inlines(node))
            case "fence" | "code_block":
                return CodeBlock(text=node.content.rstrip("\n"))
            case "hr":
                return RuleBlock()
            case "table":
                rows = (row for part in node.children for row in part.children)
                return TableBlock(rows=tuple(tuple(self._inlines(cell) for cell in row.children) for row in rows))
            case _:
                return None

    def _inlines(self, node: SyntaxTreeNode) -> tuple[Inline, ...]:
        """Return the inlines of a paragraph, a heading or a cell."""
        inline = node.children[0] if node.children else None
        return tuple(self._marked(inline.children, Inline())) if inline is not None and inline.children else ()

    def _marked(self, nodes: Iterable[SyntaxTreeNode], marks: Inline) -> Iterator[Inline]:
        for node in nodes:
            match node.type:
                case "strong":
                    yield from self._marked(node.children, marks.replace(strong=True))
                case "em":
                    yield from self._marked(node.children, marks.replace(emphasis=True))
                case "link":
                    yield from self._marked(node.children, self._linked(node, marks))
                case _:
                    yield self._worded(node, marks)

    @staticmethod
    def _linked(node: SyntaxTreeNode, marks: Inline) -> Inline:
        address = str(node.attrs.get("href", ""))
        leads_out = address.lower().startswith(_LEADING_OUT)
        fits = len(address) <= _MAX_ADDRESS_CHARACTERS  # no typesetter accepts addresses of any length
        return marks.replace(address=address) if leads_out and fits else marks

    def _worded(self, node: SyntaxTreeNode, marks: Inline) -> Inline:
        match node.type:
            case "softbreak":
                return marks.replace(text=" ")
            case "hardbreak":
                return marks.replace(text="\n")
            case "code_inline":
                return marks.replace(text=node.content, code=True)
            case "citation":
                (citation,) = parse_citations(node.content)
                return marks.replace(source=self.numbering.assign_place_number(citation), address="")
            case "sentence_mark":
                return Inline(text=node.content, mark=self.numbering.resolve_mark(node.content))
            case "image":
                return marks.replace(
                    text=replace_control_characters(f"{node.content} ({node.attrs.get('src', '')})"), address=""
                )
            case _:
                return marks.replace(text=replace_control_characters(node.content))


def render_report_html(markdown: str) -> str:
    """Render a report as HTML: no HTML of its own, no images, and links only if their text is the address.

    20,000 characters of nothing but brackets take a second: do not call it on an event loop that serves others.
    """
    return build_safe_markdown_parser().render(sanitize_markdown(markdown))


def split_into_sections(markdown: str) -> tuple[tuple[str, str], ...]:
    """Return every heading with everything below it up to the next one of its level or above."""
    tokens, lines = MarkdownIt("commonmark").parse(markdown), markdown.splitlines()
    heads = [
        (int(token.tag[1:]), token.map[0], tokens[place + 1].content)
        for place, token in enumerate(tokens)
        if token.type == "heading_open" and token.map is not None and token.level == 0
    ]
    found: list[tuple[str, str]] = []
    for place, (level, first, words) in enumerate(heads):
        end = next((line for deep, line, _ in heads[place + 1 :] if deep <= level), len(lines))
        found.append((words, "\n".join(lines[first:end]).strip()))
    return tuple(found)


def find_section(sections: Iterable[tuple[str, str]], wanted: str) -> str:
    """Return the section under the heading that is meant.

    Raises:
        BadInput: there is no such section.
    """
    known = list(sections)
    for heading, text in known:
        if heading.casefold().strip() == wanted.casefold().strip().lstrip("# "):
            return text
    place = find_heading([heading for heading, _ in known], wanted)
    if place is not None:
        return known[place][1]
    headings = ", ".join(repr(heading) for heading, _ in known)
    raise BadInput(f"there is no section {wanted!r}; available sections: {headings}")
