"""Renders a report as PDF, typeset by Typst with its own fonts and those of the machine.

The text is passed as data and never read as Typst markup; the typesetter gets an empty folder and no packages.
Characters that no font has are described instead of shown as boxes.
"""

import json
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from datetime import datetime
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from pydantic import JsonValue

from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import format_count, format_extra_hint
from waystation.kernel.value import iter_strings
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
    TableBlock,
    is_right_to_left,
    render_citation_number,
    render_mark_number,
)

_TEMPLATE = Path(__file__).with_name("report.typ")
_PROBE = b"""#set page(width: 40pt, height: 40pt, margin: 0pt)
#for it in json(bytes(sys.inputs.probed)) { page(text(font: "Libertinus Serif", it)) }"""
_GLYPH = compile_bounded(r'href="#(g[0-9A-F]{1,40})"')
_NOWHERE = "\U0010fffe"
"""A character that no font has: its glyph is that of missing characters."""
_EVERYWHERE = frozenset(map(chr, range(0x180)))
"""Latin characters, which the typesetter's own fonts have."""
_MAX_NAMED = 3
"""Maximum number of consecutive characters that are described by name."""
_MAX_KINDS = 5
_MAX_WORD_CHARACTERS, _PART = 60, 20
"""Characters: a longer word may be broken after each such part, or it would run off the page."""
_MAY_BREAK = "\u200b"
_MAX_HEADING_LEVEL = 4
_MAX_LONG_LIST = 24
"""Maximum sources that are always listed in one column."""
_MAX_COLUMN_WORD = 30
"""Maximum characters of a word in one of two columns: a longer one could run into the other column."""


class PdfResult(NamedTuple):
    """The file, and what its fonts lack; empty: nothing."""

    content: bytes
    missing_characters: str


def render_pdf(report: ExportedReport) -> PdfResult:
    """Render the file. Raises BadInput if the typesetter is not installed."""
    if find_spec("typst") is None:
        raise BadInput(f"a report as PDF needs the package typst: {format_extra_hint('reports')}")
    written = _Writer(report.sources, str).build_data(report)
    missing = _missing({sign for _, text in iter_strings(written) for sign in text} - _EVERYWHERE)
    lacking = _lacking(missing)
    shown = _Writer(report.sources, lambda text: _breakable(_described(text, missing))).build_data(report)
    inputs: dict[str, JsonValue] = {"report": shown, "lacking": lacking}
    stored_at = report.imprint.stored_at
    # Typst accepts whole seconds only.
    at = None if stored_at is None else stored_at.replace(microsecond=0)
    (content,) = _typeset(_TEMPLATE.read_bytes(), inputs, "pdf", at)
    return PdfResult(content, lacking)


def _typeset(
    source: bytes, inputs: Mapping[str, JsonValue], form: Literal["pdf", "svg"], at: datetime | None = None
) -> list[bytes]:
    """Return the file, or an image of each page."""
    import typst  # noqa: PLC0415 - of an extra

    given = {name: json.dumps(value) for name, value in inputs.items()}
    with TemporaryDirectory(prefix="waystation-typst-") as empty:
        compiler = typst.Compiler(source, root=empty, package_path=empty, package_cache_path=empty, sys_inputs=given)
        made = compiler.compile(format=form, timestamp=at)
    return [made] if isinstance(made, bytes) else made or []


def _missing(signs: Set[str]) -> frozenset[str]:
    """Return the characters that no font has: each is typeset on a page of its own, and has the glyph of a missing
    character.
    """
    if not signs:
        return frozenset()
    probed = sorted(signs)
    pages = _typeset(_PROBE, {"probed": [_NOWHERE, *probed]}, "svg")
    nowhere, *found = (set(_GLYPH.findall(page.decode())) for page in pages)
    return frozenset(sign for sign, glyphs in zip(probed, found, strict=True) if glyphs & nowhere)


def _described(text: str, missing: Set[str]) -> str:
    """Return `‹13 CJK characters›` for letters, `‹ship›` for a symbol."""
    if missing.isdisjoint(text):
        return text
    runs = groupby(text, key=lambda sign: _kind(sign) if sign in missing else "")
    return "".join(_description(kind, "".join(run)) if kind else "".join(run) for kind, run in runs)


def _kind(sign: str) -> str:
    """Return the script of a letter, which its Unicode name begins with; joiners and variation selectors have none."""
    name = unicodedata.name(sign, "unnamed")
    category = unicodedata.category(sign)
    if category in {"Mn", "Me", "Cf"}:
        return "mark"
    return name.partition(" ")[0].capitalize().replace("Cjk", "CJK") if category.startswith("L") else "sign"


def _description(kind: str, run: str) -> str:
    if kind == "mark":
        return ""
    if kind == "sign" and len(run) <= _MAX_NAMED:
        return "".join(f"‹{unicodedata.name(sign, f'U+{ord(sign):04X}').lower()}›" for sign in run)
    return f"‹{len(run)} symbols›" if kind == "sign" else f"‹{format_count(len(run), f'{kind} character')}›"


def _lacking(missing: Set[str]) -> str:
    kinds = sorted({_kind(sign) for sign in missing} - {"mark"})
    if not kinds:
        return ""
    some = ", ".join("symbols" if kind == "sign" else kind for kind in kinds[:_MAX_KINDS])
    return (
        f"Some of the report's characters ({some}{' and others' if len(kinds) > _MAX_KINDS else ''}) are in no font on "
        "the machine that made this PDF. They are described between ‹ and ›. "
        "Install a font that has them, or send the report as HTML."
    )


def _breakable(text: str) -> str:
    if len(text) <= _MAX_WORD_CHARACTERS:
        return text
    return " ".join(
        _MAY_BREAK.join(_parts(word)) if len(word) > _MAX_WORD_CHARACTERS else word for word in text.split(" ")
    )


def _parts(word: str) -> list[str]:
    return [word[place : place + _PART] for place in range(0, len(word), _PART)]


def _fit_in_columns(sources: Sequence[NumberedSource]) -> bool:
    """Whether there are so many sources, with such short names, that they are listed in two columns."""
    words = (word for source in sources for word in f"{source.name}, {source.where}".split())
    return len(sources) > _MAX_LONG_LIST and max(map(len, words)) <= _MAX_COLUMN_WORD


class _Writer:
    """Writes the data that the template reads."""

    def __init__(self, sources: Iterable[NumberedSource], shown: Callable[[str], str]) -> None:
        """Prepare the writer. `shown`: returns a text as it is displayed; the targets of links stay unchanged."""
        self._sources = {source.number: source for source in sources}
        self._shown = shown

    def build_data(self, report: ExportedReport) -> dict[str, JsonValue]:
        return {
            "title": self._shown(report.title),
            "rtl": is_right_to_left([Inline(text=report.title)]),
            "task": report.imprint.task_id,
            "imprint": self._shown(str(report.imprint)),
            "blocks": self._blocks(report.blocks),
            "checked": self._shown(report.checked),
            "remarks": [
                {"number": one.number, "shown": render_mark_number(one.number), "text": self._shown(one.text)}
                for one in report.remarks
            ],
            "sources": [self._source(source) for source in report.sources],
            "in_columns": _fit_in_columns(report.sources),
            "account": self._blocks(report.account),
        }

    def _source(self, source: NumberedSource) -> JsonValue:
        return {
            "number": source.number,
            "shown": render_citation_number(source),
            "where": self._shown(f"{source.name}, {source.where}"),
            "fault": self._shown(source.fault),
        }

    def _blocks(self, blocks: Iterable[ReportBlock]) -> list[JsonValue]:
        return [{"kind": block.kind, "rtl": False, **self._block(block)} for block in blocks]

    def _block(self, block: ReportBlock) -> dict[str, JsonValue]:
        match block:
            case ParagraphBlock(inlines=inlines):
                return {"inlines": self._inlines(inlines), "rtl": is_right_to_left(inlines)}
            case HeadingBlock(level=level, inlines=inlines):
                level = min(max(1, level - 1), _MAX_HEADING_LEVEL)
                return {"level": level, "inlines": self._inlines(inlines), "rtl": is_right_to_left(inlines)}
            case CodeBlock(text=text):
                return {"text": self._shown(text)}
            case RuleBlock():
                return {}
            case QuoteBlock(blocks=blocks):
                return {"blocks": self._blocks(blocks)}
            case ListBlock(first=first, items=items):
                return {"first": first, "items": [self._blocks(item) for item in items]}
            case TableBlock(rows=rows):
                head, *rest = [[self._inlines(cell) for cell in row] for row in rows] or [[]]
                return {"head": [*head], "cells": [cell for row in rest for cell in row]}

    def _inlines(self, inlines: Iterable[Inline]) -> list[JsonValue]:
        return [self._inline(inline) for inline in inlines]

    def _inline(self, inline: Inline) -> JsonValue:
        if inline.source:
            source = self._sources[inline.source]
            return {"source": source.number, "text": render_citation_number(source), "fault": bool(source.fault)}
        if inline.mark is not None and inline.mark.number:
            return {"source": 0, "remark": inline.mark.number, "text": render_mark_number(inline.mark.number)}
        return {
            "text": self._shown(inline.text),
            "strong": inline.strong,
            "emphasis": inline.emphasis,
            "code": inline.code,
            "address": inline.address,
            "source": inline.source,
            "remark": 0,
        }
