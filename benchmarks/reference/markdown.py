"""Paragraphs, tables and lists of the generated pages."""

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 100
"""Characters of a line; rows of tables may be longer."""
PAGE_PATH = re.compile(r"(?<![`/\w])docs/(?P<path>[\w/-]+\.md)")
"""A page as descriptions in the code name it."""
NOTE = "<!-- Made from the code by `make reference`. Change the code, not this page. -->"


def fill_paragraphs(text: str, indent: str = "") -> str:
    """Wrap each paragraph, with this indentation from its second line on."""
    paragraphs = (" ".join(one.split()) for one in re.split(r"\n\s*\n", text.strip()))
    return "\n\n".join(
        textwrap.fill(one, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        for one in paragraphs
    )


def render_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table; empty if it has no rows."""
    lines = ["| " + " | ".join(map(escape_cell, row)) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}", *lines]) if lines else ""


def escape_cell(text: str) -> str:
    """Return the text on one line, with bars that do not end its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def render_page(title: str, blocks: Iterable[str]) -> str:
    """Render a page of these blocks, with a note on where it comes from, and with links to the pages that it names."""
    page = "\n\n".join(filter(None, (NOTE, f"# {title}", *blocks))) + "\n"
    return PAGE_PATH.sub(r"[\g<path>](../\g<path>)", page)
