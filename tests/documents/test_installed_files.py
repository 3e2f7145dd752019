"""What must hold of any document, over the files of the installed packages: HTML, Markdown, JSON, CSV and texts.

Each file is put into messages, books and workbooks, changed in one way, and compared with what was read before.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from email.mime.application import MIMEApplication
from email.mime.message import MIMEMessage
from email.mime.multipart import MIMEMultipart
from email.mime.text import MIMEText
from functools import cache
from html import escape
from importlib.metadata import distributions
from itertools import chain
from pathlib import Path
from random import Random

import pytest
from bs4 import BeautifulSoup, Tag

from tests.documents.test_documents_search import Shelf
from tests.support.document_files import SHEET_NAMESPACE, make_workbook_file, make_zip_archive
from tests.support.scopes import make_task_scope
from waystation.documents.readers.extraction import UnreadableFileError, join_extracted_parts
from waystation.documents.readers.formats import decode_text, extract_file
from waystation.documents.search import HybridDocumentSearch, split_into_passages

SUFFIXES = (".html", ".md", ".rst", ".txt", ".csv", ".json")
FILES_A_SUFFIX = 12
MAX_BYTES = 60_000
LONG_LINE = 5_000
WORD = re.compile(r"(?<![^\s(])[a-z]{6,20}(?![^\s.,;)])")


def has_long_line(path: Path) -> bool:
    return max(map(len, path.read_bytes().split(b"\n"))) > LONG_LINE


@cache
def list_files() -> dict[str, list[Path]]:
    """Some files of each kind, the same ones on each run over the same packages."""
    found: dict[str, list[Path]] = {suffix: [] for suffix in SUFFIXES}
    for distribution in distributions():
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if path.suffix in found and path.is_file() and 100 < path.stat().st_size < MAX_BYTES:
                found[path.suffix].append(path)
    chosen = {suffix: sorted(set(paths)) for suffix, paths in found.items()}
    chosen["long lines"] = [path for path in chosen[".json"] + chosen[".html"] if has_long_line(path)]
    return {suffix: Random(suffix).sample(paths, min(FILES_A_SUFFIX, len(paths))) for suffix, paths in chosen.items()}


@cache
def read_alone(path: Path) -> str:
    """The text of a file; empty if it gives none."""
    content = path.read_bytes()
    try:
        if path.suffix == ".html":
            return join_extracted_parts(extract_file(content, path.name)).text
        return decode_text(content).strip()
    except UnreadableFileError:
        return ""


@cache
def list_readable() -> list[Path]:
    return [path for path in dict.fromkeys(chain(*list_files().values())) if read_alone(path)]


def squeeze(text: str) -> str:
    """Without white space and the space that keeps a line from being taken for a marker."""
    return "".join(text.split())


def test_there_are_files_of_each_kind() -> None:
    assert {suffix for suffix, paths in list_files().items() if not paths} == set()
    assert len(list_readable()) > 50


def attach(whole: MIMEMultipart, content: bytes, name: str) -> None:
    leaf = MIMEApplication(content)
    leaf.add_header("Content-Disposition", "attachment", filename=name)
    whole.attach(leaf)


def make_message(files: Mapping[str, bytes], text: str) -> MIMEMultipart:
    whole = MIMEMultipart("mixed")
    whole["From"], whole["Subject"] = "a@example.com", "Files"
    whole.attach(MIMEText(text, "plain", "utf-8"))
    for name, content in files.items():
        attach(whole, content, name)
    return whole


def name_files(paths: Sequence[Path]) -> dict[str, Path]:
    return {f"file-{number}{path.suffix}": path for number, path in enumerate(paths)}


@pytest.mark.parametrize("seed", range(6))
def test_every_file_in_a_message_is_in_its_text_or_named(seed: int) -> None:
    draw = Random(seed)
    named = name_files(draw.sample(list_readable(), 14))
    names = [*named]
    text = "\n".join(read_alone(draw.choice(list_readable())).splitlines()[:40])
    inner = make_message({name: named[name].read_bytes() for name in names[8:]}, "The inner text.")
    whole = make_message({name: named[name].read_bytes() for name in names[:8]}, text)
    # Forwarded, or as parts within parts.
    whole.attach(MIMEMessage(inner) if seed % 2 else inner)
    found = extract_file(whole.as_bytes(), "a.eml")
    shown = squeeze("\n".join(f"{place}\n{said}" for place, said in found.parts))
    skipped = "\n".join(item.name for item in found.skipped_items)
    assert squeeze(text) in shown
    assert "Theinnertext." in shown
    lost = [
        (name, path.name)
        for name, path in named.items()
        if squeeze(read_alone(path)) not in shown and f"attachment {name}" not in skipped
    ]
    assert lost == []


Insert = Callable[[BeautifulSoup, Tag], object]
"""Adds something to a page at the end of one of its elements."""
VISIBLE, MARKED = "Zugspitze", "8213"


def read_changed(path: Path, insert: Insert, draw: Random) -> tuple[str, list[str]]:
    """The text of a page after something was inserted, and what was left out."""
    soup = BeautifulSoup(path.read_bytes(), "html.parser")
    places = soup.find_all(["p", "li", "div", "dd", "section"])
    if not places:
        pytest.skip("a page without any block")
    insert(soup, draw.choice(places))
    found = extract_file(str(soup).encode(), "a.html")
    return join_extracted_parts(found).text, [f"{item.name}: {item.reason}" for item in found.skipped_items]


def insert_markup(markup: str) -> Insert:
    return lambda _, place: place.append(BeautifulSoup(markup, "html.parser"))


PAGES = range(FILES_A_SUFFIX)


@pytest.mark.parametrize("number", PAGES)
def test_what_changes_the_meaning_is_kept_in_any_page(number: int) -> None:
    path = list_files()[".html"][number]
    plain, _ = read_changed(path, insert_markup(f"<p>{VISIBLE} {MARKED}7</p>"), Random(number))
    if f"{VISIBLE} {MARKED}7" not in plain:
        pytest.skip("a page that hides the place itself")
    for markup, expected in {
        f"<p>{VISIBLE} {MARKED}<sup>7</sup></p>": f"{VISIBLE} {MARKED}^7",
        f"<p>{VISIBLE} <s>{MARKED}7</s></p>": f"{VISIBLE} ~~{MARKED}7~~",
        f"<ol start=37><li>{VISIBLE} {MARKED}7</li></ol>": f"37. {VISIBLE} {MARKED}7",
        f"<table><tr><td rowspan=2>{VISIBLE}</td><td>1</td></tr><tr><td>{MARKED}7</td></tr></table>": (
            f"{VISIBLE} | {MARKED}7"
        ),
    }.items():
        text, _ = read_changed(path, insert_markup(markup), Random(number))
        assert expected in text, markup


@pytest.mark.parametrize("number", PAGES)
def test_what_no_reader_sees_is_not_in_the_text_of_any_page_and_is_named(number: int) -> None:
    path = list_files()[".html"][number]
    before, left_out = read_changed(path, insert_markup(f"<p>{VISIBLE}</p>"), Random(number))
    if VISIBLE not in before:
        pytest.skip("a page that hides the place itself")
    for hidden in (
        f"<p hidden>{MARKED} words that are hidden</p>",
        f"<div style='display:none'>{MARKED} words that are hidden</div>",
        f"<span style='visibility: hidden'>{MARKED} words that are hidden</span>",
        f"<template>{MARKED} words that are hidden</template>",
    ):
        text, now_left_out = read_changed(path, insert_markup(f"<p>{VISIBLE}</p>{hidden}"), Random(number))
        assert text == before, hidden
        assert now_left_out != left_out or "<template>" in hidden


def make_workbook(parts: Mapping[str, bytes]) -> bytes:
    """A workbook with a sheet for each part, of one line in each row."""
    sheets: dict[str, tuple[str, str | None]] = {}
    for name, content in parts.items():
        rows = [
            f'<row r="{number}"><c r="A{number}" t="inlineStr"><is><t>{escape(line)}</t></is></c></row>'
            for number, line in enumerate(content.decode("ascii", "replace").splitlines()[:50], 1)
        ]
        broken = content == BROKEN
        end = "" if broken else "</sheetData></worksheet>"
        sheets[name] = ("worksheet", f'<worksheet xmlns="{SHEET_NAMESPACE}"><sheetData>{"".join(rows)}{end}')
    return make_workbook_file(sheets)


def make_book(parts: Mapping[str, bytes]) -> bytes:
    """A book with a chapter for each part; a broken one is missing."""
    items = "".join(f'<item id="{name}" href="{name}.xhtml"/>' for name in parts)
    order = "".join(f'<itemref idref="{name}"/>' for name in parts)
    chapters = {
        f"{name}.xhtml": f"<html><body><pre>{escape(content.decode('utf-8', 'replace'))}</pre></body></html>"
        for name, content in parts.items()
        if content != BROKEN
    }
    return make_zip_archive({"a.opf": f"<package>{items}{order}</package>", **chapters})


def make_mail(parts: Mapping[str, bytes]) -> bytes:
    return make_message({f"{name}.txt": content for name, content in parts.items()}, "Attached.").as_bytes()


BROKEN = b"%PDF-1.7 broken"
CONTAINERS: Mapping[str, Callable[[Mapping[str, bytes]], bytes]] = {
    "a.xlsx": make_workbook,
    "a.epub": make_book,
    "a.eml": make_mail,
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("seed", range(4))
def test_one_bad_part_costs_that_part_alone(name: str, seed: int) -> None:
    draw = Random(seed)
    texts = [path for path in list_readable() if path.suffix in {".md", ".rst", ".txt"}]
    parts = {f"part{number}": path.read_bytes() for number, path in enumerate(draw.sample(texts, 5))}
    bad = draw.choice([*parts])
    whole = extract_file(CONTAINERS[name](parts), name)
    damaged = extract_file(CONTAINERS[name]({**parts, bad: BROKEN}), name)
    number = [*parts].index(bad)
    texts_before = [text for _, text in whole.parts if text.strip()]
    del texts_before[number + (name == "a.eml") * (len(texts_before) - len(parts))]
    assert [text for _, text in damaged.parts if text.strip()] == texts_before
    skipped = {f"{item.name}: {item.reason}" for item in damaged.skipped_items}
    assert [one for one in skipped - {f"{item.name}: {item.reason}" for item in whole.skipped_items} if bad in one]


def choose_words(text: str, draw: Random) -> list[tuple[str, set[int]]]:
    """Words of few lines, with the numbers of their lines."""
    places: dict[str, set[int]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        for word in WORD.findall(line):
            places.setdefault(word, set()).add(number)
    rare = sorted(word for word, lines in places.items() if len(lines) <= 2)
    return [(word, places[word]) for word in draw.sample(rare, min(4, len(rare)))]


async def test_a_word_is_found_wherever_it_stands_in_a_line() -> None:
    paths = list_readable()
    texts = {f"{number}-{path.name}": read_alone(path) for number, path in enumerate(paths)}
    search, asked, lost = HybridDocumentSearch(Shelf(texts)), 0, list[tuple[str, str]]()
    for number, (name, text) in enumerate(texts.items(), 1):
        for word, lines in choose_words(text, Random(number)):
            hits = await search.search(make_task_scope("task-1"), word, 40, among={number})
            asked += 1
            # The lines that match, and the part of a long line that has the word.
            if not any(
                word in hit.text and not lines.isdisjoint(range(hit.first_line, hit.last_line + 1)) for hit in hits
            ):
                lost.append((name, word))
    assert asked > 100
    assert lost == []


def test_every_line_can_be_read_whole_however_long_it_is() -> None:
    longest = 0
    for path in list_readable():
        text = read_alone(path)
        lines = text.split("\n")
        read: dict[int, dict[int, str]] = {}
        for passage in split_into_passages(path.name, text):
            if passage.first_character:
                read.setdefault(passage.first_line, {})[passage.first_character - 1] = passage.text
        for number, parts in read.items():
            line, end = lines[number - 1], 0
            for begin, said in sorted(parts.items()):
                assert begin <= end
                assert line[begin : begin + len(said)] == said
                end = begin + len(said)
            assert end >= len(line.rstrip())
            longest = max(longest, len(line))
    assert longest > LONG_LINE
