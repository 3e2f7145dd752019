"""Pages whose text is known: prose of this repository and of licences, set by Typst in several fonts and layouts."""

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import distributions
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

import numpy as np
import typst
from PIL import Image, ImageFilter

from benchmarks.checkout import ROOT
from waystation.kernel.patterns import compile_bounded

Layout = Literal["prose", "columns", "table"]
_FONTS = ("Libertinus Serif", "New Computer Modern", "DejaVu Sans Mono", "DejaVu Sans")
"""All of them come with Typst, except the last one: where it is not installed, the first one is used."""
_LAYOUTS: tuple[Layout, ...] = ("prose", "columns", "prose", "table", "columns")
_SIZES = (8, 9.5, 11)
"""In points."""
_WORDS = {"prose": 31_000, "columns": 28_000, "table": 13_000}
"""Words that fit on a page, times the square of the size in points and the width of the widest font."""
_NOISE, _BLUR, _QUALITY, _GREY = 14.0, 0.5, 45, 0.82
"""Standard deviation of the noise, radius of the blur, quality of the JPEG, and how much contrast is left."""
_TEMPLATE = b"""
#let data = json(bytes(sys.inputs.page))
#set page(paper: "a4", margin: 20mm)
#set text(font: (data.font, "Libertinus Serif"), size: data.size * 1pt, hyphenate: false)
#set par(justify: data.layout != "table")
#text(size: data.size * 1.5pt, weight: "bold", data.title)
#v(3mm)
#if data.layout == "prose" {
  for one in data.blocks { par(one) }
} else if data.layout == "columns" {
  grid(columns: (1fr, 1fr), column-gutter: 8mm, ..data.blocks.map(one => par(one)))
} else {
  table(columns: (auto, 1fr, auto), stroke: 0.4pt, ..data.blocks)
}
"""
_MARKUP = compile_bounded(r"[`*_#|\[\]<>~]|\(https?[^)]{0,300}+\)|https?:\S{1,300}+")
_PRINTABLE = compile_bounded(r"\A[A-Za-z0-9.,;:()'\"%/&+=-]{1,24}\Z")


class PrintedPage(NamedTuple):
    """A page and its text."""

    name: str
    layout: Layout
    font: str
    size: float
    text: str
    pdf: bytes
    picture: Image.Image
    """In 300 dpi."""


def list_words() -> Iterator[str]:
    """Words of the repository's pages and of installed licences, in the order in which they stand there."""
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for path in pages:
        yield from _MARKUP.sub(" ", path.read_text("utf-8")).split()
    for found in sorted(distributions(), key=lambda one: one.name):
        for file in found.files or ():
            if file.name in {"LICENSE", "LICENSE.txt", "LICENSE.md"}:
                yield from Path(str(found.locate_file(file))).read_text("utf-8", "replace").split()


def print_pages(count: int) -> Iterator[PrintedPage]:
    """Yield so many pages, each in the next layout, font and size."""
    words = (word for word in list_words() if _PRINTABLE.match(word))
    looks = [(font, size) for size in _SIZES for font in _FONTS]
    for number, (font, size) in enumerate(islice(cycle(looks), count)):
        yield _print(f"page-{number + 1:02}", _LAYOUTS[number % len(_LAYOUTS)], font, size, words)


def _print(name: str, layout: Layout, font: str, size: float, words: Iterator[str]) -> PrintedPage:
    title = " ".join(islice(words, 4))
    blocks = [*_blocks(layout, [*islice(words, int(_WORDS[layout] / size**2))])]
    page = json.dumps({"font": font, "size": size, "layout": layout, "title": title, "blocks": blocks})
    with TemporaryDirectory() as empty:
        pdf, drawn = (
            typst.Compiler(_TEMPLATE, root=empty, package_path=empty, sys_inputs={"page": page}).compile(
                format=form, ppi=300
            )
            for form in ("pdf", "png")
        )
    assert isinstance(pdf, bytes)
    assert isinstance(drawn, bytes), f"{name} takes more than a page"
    return PrintedPage(
        name, layout, font, size, "\n".join([title, *blocks]), pdf, Image.open(BytesIO(drawn)).convert("L")
    )


def _blocks(layout: Layout, words: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs, two columns, or the cells of rows with an item, a description and a number."""
    if layout == "table":
        for number, at in enumerate(range(0, len(words) - 8, 8), 1):
            yield f"{number}.{number * 7 % 10}"
            yield " ".join(words[at : at + 7])
            yield f"{number * 7919 % 100_000:,}.{number * 37 % 100:02}"
    else:
        length = len(words) // 2 if layout == "columns" else 60
        for at in range(0, len(words) - length + 1, length):
            yield " ".join(words[at : at + length])


def make_noisy(page: PrintedPage, seed: int) -> bytes:
    """Scan a page badly: 150 dpi, turned by 1 to 2 degrees, blurred, faint, with noise, as JPEG."""
    random = np.random.default_rng(seed)
    angle = float(random.uniform(1, 2) * random.choice([-1, 1]))
    width, height = page.picture.size
    small = page.picture.resize((width // 2, height // 2), Image.Resampling.BOX)
    turned = small.rotate(angle, Image.Resampling.BICUBIC, fillcolor=255).filter(ImageFilter.GaussianBlur(_BLUR))
    faint = 255 - (255 - np.asarray(turned, dtype=np.float64)) * _GREY - 12
    noisy = np.clip(faint + random.normal(0, _NOISE, faint.shape), 0, 255).astype(np.uint8)
    file = BytesIO()
    Image.fromarray(noisy).save(file, "JPEG", quality=_QUALITY, dpi=(150, 150))
    return file.getvalue()


def make_scan(page: PrintedPage) -> bytes:
    """Scan a page well: a PDF of its picture in 300 dpi."""
    file = BytesIO()
    page.picture.save(file, "PDF", resolution=300)
    return file.getvalue()


def remove_font_maps(page: PrintedPage) -> bytes:
    """Take the maps from glyphs to letters out of a PDF, as broken generators do."""
    assert b"/ToUnicode" in page.pdf
    return page.pdf.replace(b"/ToUnicode", b"/ToUnicodX")


def write_file(folder: Path, name: str, content: bytes) -> Path:
    """Write a file of the corpus."""
    path = folder / name
    path.write_bytes(content)
    return path
