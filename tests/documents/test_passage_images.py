"""Passages on the pages of their PDFs, drawn by a confined child."""

import os
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zlib import decompress

import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.support.document_files import make_pdf_file
from waystation.documents.document_loading import load_documents
from waystation.documents.readers import passage_image_child
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.ocr import PageReadingResult
from waystation.documents.readers.passage_image import (
    PassageImage,
    PassageImageHeader,
    PassageImageRenderer,
    PassageImageRequest,
    build_passage_request,
    encode_png,
)
from waystation.documents.readers.recognition import PagePicture

FIRST = "The harbour was dug\nin 1811 by hand.\nIt silted up.\nThe keeper left.\nIt silted up.\nNo ship came."
YELLOW = b"\xff\xff\x72"


@pytest.fixture(scope="module")
def renderer() -> Iterator[PassageImageRenderer]:
    with PassageImageRenderer() as renderer:
        yield renderer


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    path = tmp_path / "paper.pdf"
    path.write_bytes(make_pdf_file(FIRST, "scan", "Of the second page."))
    return path


def render_lines(renderer: PassageImageRenderer, path: Path, first: int, last: int) -> PassageImage:
    (document,) = load_documents([path]).documents
    request = build_passage_request(document.text.split("\n"), first, last)
    assert request is not None
    return renderer.render(path, request)


def list_rows(image: PassageImage) -> list[bytes]:
    """Rows of pixels of a picture that `encode_png` has made."""
    width = int.from_bytes(image.png[16:20])
    start = image.png.index(b"IDAT") + 4
    rows = decompress(image.png[start : start + int.from_bytes(image.png[start - 8 : start - 4])])
    size = width * 3 + 1
    return [rows[at + 1 : at + size] for at in range(0, len(rows), size)]


def find_marked_rows(image: PassageImage) -> list[int]:
    return [number for number, row in enumerate(list_rows(image)) if YELLOW in row]


def test_the_lines_of_a_passage_are_marked_and_only_their_part_of_the_page_is_shown(
    renderer: PassageImageRenderer, paper: Path
) -> None:
    one, two = render_lines(renderer, paper, 2, 2), render_lines(renderer, paper, 2, 3)
    assert (one.page, one.marked, two.marked) == (1, True, True)
    assert 15 <= len(find_marked_rows(one)) <= 35
    assert len(find_marked_rows(two)) > 1.5 * len(find_marked_rows(one))
    assert len(list_rows(two)) < 300


def test_a_line_with_a_joined_hyphen_and_a_character_without_a_code_is_marked_whole(
    renderer: PassageImageRenderer, tmp_path: Path
) -> None:
    path = tmp_path / "hyphens.pdf"
    path.write_bytes(make_pdf_file("The @rst non-\nGAAP line.\nThe infor-\nmation is information.", maps={"@": "\0"}))
    first, second = [render_lines(renderer, path, line, line) for line in (2, 3)]
    assert first.marked
    assert second.marked
    # Each was two lines on the page.
    assert min(len(find_marked_rows(first)), len(find_marked_rows(second))) > 30


def test_of_equal_lines_the_cited_one_is_marked(renderer: PassageImageRenderer, tmp_path: Path) -> None:
    path = tmp_path / "equal.pdf"
    path.write_bytes(make_pdf_file("It silted up.\nThe keeper left.\nIt silted up.\nNo ship came."))
    first, second = [list_rows(render_lines(renderer, path, line, line)) for line in (2, 4)]
    assert len(second) > len(first)  # the first is at the top, where less of the page is above it


def test_a_passage_on_two_pages_is_shown_on_the_first_and_a_marker_is_no_passage(
    renderer: PassageImageRenderer, paper: Path
) -> None:
    (document,) = load_documents([paper]).documents
    lines = document.text.split("\n")
    both = build_passage_request(lines, 7, len(lines))
    assert both == PassageImageRequest(page=1, words="No ship came.\n", before="\n".join(lines[1:6]))
    marker = build_passage_request(lines, lines.index("[page 3]") + 1, len(lines))
    assert marker is not None
    assert (marker.page, marker.words, marker.before) == (3, "Of the second page.", "")
    assert renderer.render(paper, marker).marked
    assert build_passage_request(["# Notes", "Text."], 1, 2) is None
    assert build_passage_request(lines, 900, 901) is None


@pytest.mark.parametrize("glyph", ["لا", "الله"])
def test_lines_with_letters_of_one_glyph_that_are_read_from_the_right_are_marked_too(
    renderer: PassageImageRenderer, tmp_path: Path, glyph: str
) -> None:
    path = tmp_path / "arabic.pdf"
    path.write_bytes(make_pdf_file("م#س\nنيثالث\nم#س", maps={"#": glyph}))
    one, three = render_lines(renderer, path, 3, 3), render_lines(renderer, path, 2, 4)
    assert len(find_marked_rows(three)) > 2.5 * len(find_marked_rows(one)) > 0


SCANNED = ("The harbour was dug in 1811.", "It silted up by 1840.", "The keeper left in May.")


def draw_scan(*lines: str) -> Image.Image:
    scan = Image.new("L", (1_240, 900), "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(scan).text((90, 90 + 120 * number), line, font=ImageFont.load_default(44), fill="black")
    return scan


@pytest.mark.parametrize("turned", [0, 90, 270])
@pytest.mark.parametrize("form", ["PDF", "TIFF"])
def test_recognised_words_are_marked_where_they_are_in_the_picture(
    renderer: PassageImageRenderer, tmp_path: Path, form: str, turned: int
) -> None:
    path = tmp_path / f"scan.{form.lower()}"
    pages = [draw_scan("The first page."), draw_scan(*SCANNED).rotate(turned, expand=True)]
    pages[0].save(path, form, save_all=True, append_images=pages[1:], resolution=150)
    (document,) = load_documents([path]).documents
    line = document.text.split("\n").index(SCANNED[1]) + 1
    request = build_passage_request(document.text.split("\n"), line, line)
    assert request is not None
    assert (request.page, request.is_recognised) == (2, True)
    image = renderer.render(path, request)
    assert image.marked
    whole, marked = list_rows(image), find_marked_rows(image)
    share = len(marked) / len(whole)
    if turned:  # its lines go up or down the page
        assert share > 0.5
    else:
        assert 15 <= len(marked) <= 90
        assert len(whole) < 400


def test_of_a_picture_that_is_a_document_the_page_is_shown(renderer: PassageImageRenderer, tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    draw_scan(*SCANNED).save(path)
    (document,) = load_documents([path]).documents
    one, all_lines = [
        renderer.render(path, request)
        for last in (2, 6)
        if (request := build_passage_request(document.text.split("\n"), 2, last))
    ]
    assert (one.marked, all_lines.marked) == (True, True)
    assert len(find_marked_rows(all_lines)) > 2.5 * len(find_marked_rows(one)) > 0
    assert renderer.render(path, PassageImageRequest(page=1, words="No", before="", is_recognised=True)).marked is False
    with pytest.raises(UnreadableFileError, match="has no page 2"):
        renderer.render(path, PassageImageRequest(page=2, words="x", before=""))


def test_a_page_is_recognised_once_for_all_of_its_passages(
    paper: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pages, read = list[int](), passage_image_child.read_picture

    def read_and_count(page: PagePicture) -> PageReadingResult:
        pages.append(page.width)
        return read(page)

    monkeypatch.setattr(passage_image_child, "read_picture", read_and_count)
    other = tmp_path / "other.png"
    Image.new("L", (200, 100), 255).save(other)
    for path, words in ((paper, "scan"), (paper, "of"), (other, "No"), (paper, "page")):
        request = PassageImageRequest(page=1, words=words, before="", is_recognised=True)
        with path.open("rb") as file:
            header, _, _ = passage_image_child.answer(
                request.model_dump_json().encode(), [os.dup(file.fileno())]
            ).partition(b"\n")
        assert not PassageImageHeader.model_validate_json(header).reason
    assert len(pages) == len(set(pages)) == 2


def test_words_that_are_not_on_the_page_leave_it_whole_and_unmarked(
    renderer: PassageImageRenderer, paper: Path
) -> None:
    found = renderer.render(paper, PassageImageRequest(page=1, words="Not there at all", before=""))
    assert (found.marked, len(list_rows(found))) == (False, 1651)
    assert find_marked_rows(found) == []
    some = renderer.render(paper, PassageImageRequest(page=1, words="Th\ufffd harbour\nin 1811 by hand.", before=""))
    assert some.marked


def test_what_cannot_be_drawn_is_refused_and_the_next_one_is_drawn(
    renderer: PassageImageRenderer, paper: Path, tmp_path: Path
) -> None:
    (tmp_path / "no.pdf").write_bytes(b"%PDF-1.7 broken")
    (tmp_path / "locked.pdf").write_bytes(make_pdf_file("One", encrypted=True))
    request = PassageImageRequest(page=9, words="x", before="")
    reasons = {"no.pdf": "cannot be drawn", "locked.pdf": "cannot be drawn", "gone.pdf": "no such file"}
    for name, reason in {"paper.pdf": "has no page 9", **reasons}.items():
        with pytest.raises(UnreadableFileError, match=reason):
            renderer.render(tmp_path / name, request)
    assert render_lines(renderer, paper, 2, 2).marked


def test_the_png_is_read_by_another_library() -> None:
    with Image.open(BytesIO(encode_png(2, 1, bytes([255, 0, 0, 1, 2, 3])))) as opened:
        assert [opened.getpixel((x, 0)) for x in (0, 1)] == [(255, 0, 0), (1, 2, 3)]
