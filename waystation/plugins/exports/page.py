"""Renders a report as one HTML page: no scripts, nothing loaded, everything escaped; for light and dark screens and for
paper.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from html import escape
from types import MappingProxyType
from typing import NamedTuple

from waystation.documents.cited_passages import PassageLine, PassageView
from waystation.reports.blocks import (
    CodeBlock,
    ExportedReport,
    HeadingBlock,
    Inline,
    ListBlock,
    NumberedSource,
    ParagraphBlock,
    QuoteBlock,
    ReportBlock,
    RuleBlock,
    SentenceMark,
    SentenceRemark,
    TableBlock,
    render_citation_number,
    render_mark_number,
)


class SourceDetails(NamedTuple):
    """What is shown below each source, by its number."""

    pictures: Mapping[int, bytes] = MappingProxyType({})
    """PNG pictures of passages on their pages."""
    passages: Mapping[int, PassageView] = MappingProxyType({})
    """The cited lines, cells, or parts of e-mails."""


NO_DETAILS = SourceDetails()
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE = """
:root{color-scheme:light dark;--ink:#1d2126;--paper:#fff;--soft:#5c6670;--line:#d8dde2;--tint:#f4f6f8;--link:#1a5fa8;
--fault:#a8261f;--mark:#fff3b0}
@media(prefers-color-scheme:dark){:root{--ink:#e3e6e9;--paper:#16191d;--soft:#9aa5b0;--line:#363d45;--tint:#20252b;
--link:#85b8f0;--fault:#ff8f85;--mark:#4d4413}}
*{box-sizing:border-box}
body{margin:0 auto;padding:3rem 1.25rem 4rem;max-width:44rem;background:var(--paper);color:var(--ink);
font:1.0625rem/1.6 Charter,"Bitstream Charter","Sitka Text",Cambria,Georgia,serif;overflow-wrap:anywhere}
h1,h2,h3,h4,h5,h6,.imprint,th,.sources,.account{font-family:system-ui,"Segoe UI",Roboto,Helvetica,Arial,sans-serif}
h1{font-size:1.9rem;line-height:1.2;margin:0 0 .5rem;text-wrap:balance}
h2{font-size:1.3rem;line-height:1.3;margin:2.4rem 0 .6rem}
h3,h4,h5,h6{font-size:1.08rem;margin:1.8rem 0 .4rem}
p,ul,ol,blockquote,pre,table{margin:.8rem 0}
li>p{margin:.3rem 0}li+li{margin-top:.25rem}
.imprint{color:var(--soft);font-size:.85rem;margin:0 0 2rem;padding-bottom:1rem;border-bottom:1px solid var(--line)}
a{color:var(--link);text-decoration-thickness:.06em;text-underline-offset:.15em}
a.cite{text-decoration:none;white-space:nowrap;font-size:.85em}
a.cite{unicode-bidi:isolate}a.cite:hover{text-decoration:underline}
.fault,a.fault{color:var(--fault)}
sup.verdict{line-height:0;font-size:.72em}.undecided{color:var(--soft);cursor:help}
.remarks{padding:0;list-style:none}.remarks li{padding:.15rem .3rem}
blockquote{margin-inline:0;padding:.6rem 1rem;background:var(--tint);border-inline-start:3px solid var(--line)}
blockquote>:first-child{margin-top:0}blockquote>:last-child{margin-bottom:0}
code,pre{font-family:ui-monospace,"Cascadia Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;font-size:.88em}
code{background:var(--tint);padding:.1em .3em;border-radius:3px}
pre{background:var(--tint);padding:.8rem 1rem;white-space:pre-wrap;line-height:1.45}
.table{overflow-x:auto}table{border-collapse:collapse;font-size:.93rem;line-height:1.45}
th,td{border-bottom:1px solid var(--line);padding:.4rem .7rem;text-align:start;vertical-align:top}
th{border-bottom-width:2px;font-size:.86rem}
hr{border:0;border-top:1px solid var(--line);margin:2rem 0}
.sources ol{list-style:none;padding:0;columns:17rem 2;column-gap:2rem}
.pictured ol{columns:auto}.pictured li{flex-wrap:wrap}.pictured img{max-width:100%;border:1px solid var(--line)}
.passage{flex-basis:100%;margin-inline-start:2.8rem}.passage table{font-size:.82rem;margin:.2rem 0 .6rem}
.passage td{padding:.1rem .5rem;white-space:pre-wrap}.passage th{padding:.1rem .5rem}.passage .line{color:var(--soft);
text-align:end}.passage .cited td,.passage .cited th{background:var(--mark)}.message td{border:0}
.sources li{break-inside:avoid;display:flex;gap:.6rem;padding:.15rem .3rem;line-height:1.45}
.sources,.account{font-size:.88rem}.sources .number{flex:none;font-size:1em;min-width:2.2rem;text-align:end}
.sources :target{background:var(--tint);outline:2px solid var(--link)}
.account{color:var(--soft);margin-top:3rem;border-top:1px solid var(--line)}
.account h2{font-size:1.05rem}.sources h2{font-size:1.2rem}
@media print{@page{margin:22mm 20mm}:root{color-scheme:light;--ink:#000;--paper:#fff;--soft:#444;--line:#bbb;
--tint:#f3f3f3;--link:#000;--fault:#a8261f;--mark:#fff3b0}
body{padding:0;max-width:none;font-size:10.5pt}h1,h2,h3,h4{break-after:avoid}
li,blockquote,tr{break-inside:avoid}p{orphans:3;widows:3}}
"""


def render_html_page(report: ExportedReport, extras: SourceDetails = NO_DETAILS) -> str:
    """Render the page. Each citation links to the list of sources, and each source back to its first citation."""
    policy = f"{_POLICY}; img-src data:" if extras.pictures else _POLICY
    return "\n".join([
        '<!doctype html>\n<html lang="en">\n<head>',
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        _Writer(report.sources, extras=extras).render(report),
        "</main>\n</body>\n</html>\n",
    ])  # fmt: skip


def render_html_body(report: ExportedReport, page: str) -> str:
    """Render the body of a report for another page; its citations link to `page` with the source's number."""
    return _Writer(report.sources, page).render(report)


class _Writer:
    """Writes HTML, and tracks which sources were cited already."""

    def __init__(self, sources: Iterable[NumberedSource], page: str = "", extras: SourceDetails = NO_DETAILS) -> None:
        self._sources = {source.number: source for source in sources}
        self._cited: set[int] = set()
        self._page = page
        self._extras = extras

    def render(self, report: ExportedReport) -> str:
        parts = [
            f'<h1 dir="auto">{escape(report.title)}</h1>\n<p class="imprint">{escape(str(report.imprint))}</p>',
            self._blocks(report.blocks),
            self._list(report),
        ]
        if report.account:
            parts.append(f'<section class="account">\n{self._blocks(report.account)}\n</section>')
        return "\n".join(filter(None, parts))

    def _list(self, report: ExportedReport) -> str:
        if not (report.sources or report.checked):
            return ""
        said = f"<p>{escape(report.checked)}</p>\n" if report.checked else ""
        if report.remarks:
            remarks = "\n".join(map(self._remark, report.remarks))
            said += f'<ul class="remarks">\n{remarks}\n</ul>\n'
        items = "\n".join(map(self._source, report.sources))
        kind = "sources" if self._extras == NO_DETAILS else "sources pictured"
        return f'<section class="{kind}">\n<h2>Sources</h2>\n{said}<ol>\n{items}\n</ol>\n</section>'

    def _source(self, source: NumberedSource) -> str:
        fault = f'. <span class="fault">Failed check: {escape(source.fault)}.</span>' if source.fault else ""
        number = f'<a class="cite number" href="#cite-{source.number}">{render_citation_number(source)}</a>'
        name = f'<bdi title="{escape(source.document)}">{escape(source.name)}</bdi>'
        said = f"{number}<span>{name}, {escape(source.where)}{fault}</span>"
        return f'<li id="source-{source.number}">{said}{self._passage(source)}{self._picture(source)}</li>'

    def _passage(self, source: NumberedSource) -> str:
        if (passage := self._extras.passages.get(source.number)) is None:
            return ""
        headers = [(one.name, one.value) for one in passage.message]
        if headers:
            headers.append(("Part", passage.part or "the message"))
        said = "".join(_row("td", map(escape, header)) for header in headers)
        rows = "\n".join(_passage_row(line, passage.columns) for line in passage.lines)
        message = f'<table class="message">{said}</table>' if said else ""
        return f'<div class="table passage">{message}<table>\n{rows}\n</table></div>'

    def _picture(self, source: NumberedSource) -> str:
        if (png := self._extras.pictures.get(source.number)) is None:
            return ""
        words = escape(f"{source.name}, {source.where}: picture of the page")
        return f'<img alt="{words}" src="data:image/png;base64,{b64encode(png).decode()}">'

    @staticmethod
    def _remark(remark: SentenceRemark) -> str:
        number = f'<a class="fault" href="#sentence-{remark.number}">{render_mark_number(remark.number)}</a>'
        return f'<li id="remark-{remark.number}" dir="auto">{number} {escape(remark.text)}</li>'

    def _blocks(self, blocks: Iterable[ReportBlock]) -> str:
        return "\n".join(map(self._block, blocks))

    def _block(self, block: ReportBlock) -> str:
        match block:
            case ParagraphBlock(inlines=inlines):
                return f'<p dir="auto">{self._inlines(inlines)}</p>'
            case HeadingBlock(level=level, inlines=inlines):
                level = max(2, level)
                return f'<h{level} dir="auto">{self._inlines(inlines)}</h{level}>'
            case CodeBlock(text=text):
                return f"<pre>{escape(text)}</pre>"
            case RuleBlock():
                return "<hr>"
            case QuoteBlock(blocks=blocks):
                return f"<blockquote>\n{self._blocks(blocks)}\n</blockquote>"
            case ListBlock():
                return self._items(block)
            case TableBlock(rows=rows):
                head, *rest = [[self._inlines(cell) for cell in row] for row in rows] or [[]]
                lines = [_row("th", head), *(_row("td", row) for row in rest)]
                return '<div class="table"><table>\n' + "\n".join(lines) + "\n</table></div>"

    def _items(self, block: ListBlock) -> str:
        items = "\n".join(f"<li>{self._blocks(item)}</li>" for item in block.items)
        begin, end = ("<ul>", "</ul>") if block.first is None else (f'<ol start="{block.first}">', "</ol>")
        return f"{begin}\n{items}\n{end}"

    def _inlines(self, inlines: Iterable[Inline]) -> str:
        return "".join(map(self._inline, inlines))

    def _inline(self, inline: Inline) -> str:
        if inline.source:
            return self._citation(self._sources[inline.source])
        if inline.mark is not None:
            return _mark(inline.mark, inline.text)
        text = escape(inline.text).replace("\n", "<br>")
        for wanted, tag in ((inline.code, "code"), (inline.emphasis, "em"), (inline.strong, "strong")):
            text = f"<{tag}>{text}</{tag}>" if wanted else text
        return f'<a href="{escape(inline.address)}" rel="noreferrer">{text}</a>' if inline.address else text

    def _citation(self, source: NumberedSource) -> str:
        place = "" if source.number in self._cited else f' id="cite-{source.number}"'
        self._cited.add(source.number)
        kind = "cite fault" if source.fault else "cite"
        title = escape(f"{source.name}, {source.where}")
        href = f"{escape(self._page)}?source={source.number}#source" if self._page else f"#source-{source.number}"
        return f'<a class="{kind}"{place} href="{href}" title="{title}">{render_citation_number(source)}</a>'


def _mark(mark: SentenceMark, text: str) -> str:
    """Write the mark of a sentence, which says why it is there to pointers and to screen readers."""
    if not mark.number:
        reason = escape(mark.reason)
        return f'<span class="undecided" role="img" title="{reason}" aria-label="{reason}">{escape(text)}</span>'
    reason = escape(f"The cited lines do not support this sentence: {mark.reason}")
    place = f' id="sentence-{mark.number}"' if mark.is_first else ""
    link = f'<a class="fault"{place} href="#remark-{mark.number}" title="{reason}" aria-label="{reason}">'
    return f'<sup class="verdict">{link}{render_mark_number(mark.number)}</a></sup>'


def _passage_row(line: PassageLine, columns: int) -> str:
    """Write a line with its number, or a row with its cells."""
    tag = "th" if line.is_head else "td"
    cells = line.cells + ("",) * (columns - len(line.cells)) if columns else (line.text,)
    shown = "".join(f'<{tag} dir="auto">{escape(cell)}</{tag}>' for cell in cells)
    kind = ' class="cited"' if line.is_cited else ""
    return f'<tr{kind}><td class="line">{line.number}</td>{shown}</tr>'


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f'<{tag} dir="auto">{cell}</{tag}>' for cell in cells) + "</tr>"
