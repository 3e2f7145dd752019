"""Pages and files that are pictures: which of them are recognised, what is said of them, and the limits on it."""

import struct
import sys
import zlib
from collections.abc import Iterable, Sequence
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
import pytest
import typst
from PIL import Image, ImageDraw, ImageFont

from tests.support.document_files import make_mail_file, make_pdf_file
from waystation.documents.documents import SkippedItem, is_recognised_place
from waystation.documents.readers import ocr, pictures, reader
from waystation.documents.readers.extraction import RecognitionOptions, UnreadableFileError
from waystation.documents.readers.formats import extract_file
from waystation.documents.readers.ocr import OcrRecogniser
from waystation.documents.readers.reader import (
    SubprocessFileReader,
    describe_recognition,
    find_recognition_options,
    read_file,
)
from waystation.documents.readers.recognition import (
    MAX_PIXELS,
    RECOGNITION_HINT,
    PagePicture,
    PictureLoader,
    RecognisedPage,
)

ARTICLE = "The cap is 250,000 euros."
NO_LETTERS = "the PDF's fonts do not say which letters they draw"


class FakeRecogniser:
    """Recognises what it is given to say, and keeps the pictures."""

    def __init__(self, *pages: RecognisedPage) -> None:
        self._pages = iter(pages)
        self.pictures: list[PagePicture] = []

    def require(self) -> None:
        pass

    def recognise(self, pictures: Iterable[PictureLoader]) -> Sequence[RecognisedPage]:
        results: list[RecognisedPage] = []
        for load in pictures:
            try:
                self.pictures.append(load())
                results.append(next(self._pages, RecognisedPage("Text.", 0.956)))
            except UnreadableFileError as unreadable:
                results.append(RecognisedPage(reason=str(unreadable)))
        return results


def make_picture(
    *lines: str, size: tuple[int, int] = (1_240, 400), form: str = "PNG", more: Sequence[Image.Image] = ()
) -> bytes:
    file = BytesIO()
    save_all = {"save_all": True, "append_images": more} if more else {}
    draw_picture(*lines, size=size).save(file, form, **save_all)
    return file.getvalue()


def draw_picture(*lines: str, size: tuple[int, int] = (1_240, 400)) -> Image.Image:
    picture = Image.new("L", size, "white")
    font = ImageFont.load_default(40)
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((60, 60 + 80 * number), line, font=font, fill="black")
    return picture


def test_a_page_without_usable_text_is_recognised_and_keeps_its_place() -> None:
    recogniser = FakeRecogniser(RecognisedPage("Scanned.", 0.956), RecognisedPage("Faint.", 0.61), RecognisedPage())
    read = extract_file(make_pdf_file("One.", "scan", "", "scan", "scan", "Six."), "a.pdf", recogniser=recogniser)
    assert read.parts == [
        ("page 1", "One."),
        ("page 2 (recognised from a picture, confidence 0.95)", "Scanned."),
        ("page 4 (recognised from a picture, confidence 0.61)", "Faint."),
        ("page 6", "Six."),
    ]
    assert [f"{one.name}: {one.reason}" for one in read.skipped_items] == [
        "page 5: no text, perhaps a scan (no text was recognised)",
        "page 4: barely legible; many recognised characters may be wrong",
        "page 3: empty",
    ]
    assert [is_recognised_place(part.place) for part in read.parts] == [False, True, True, False]


@pytest.mark.parametrize(
    ("page", "recognised"), [("xxxxx", True), ("An oxxxce and", True), ("An oxce and an axliate.", False)]
)
def test_a_page_with_many_unknown_characters_is_recognised_instead(page: str, recognised: bool) -> None:
    content = make_pdf_file("One.", page, maps={"x": ""})
    (_, *parts) = extract_file(content, "a.pdf", recogniser=FakeRecogniser()).parts
    assert [part.text == "Text." for part in parts] == [recognised]


def test_a_page_that_is_not_recognised_keeps_the_text_that_it_has() -> None:
    content = make_pdf_file("An oxxxce and", maps={"x": ""})
    read = extract_file(content, "a.pdf", recogniser=FakeRecogniser(RecognisedPage()))
    assert [part.text for part in read.parts] == ["An o�ce and"]
    assert [one.reason for one in read.skipped_items] == [
        f"3 characters shown as �, because {NO_LETTERS} (often ligatures such as fi)"
    ]


def make_stamped_scan(folder: Path, share: int, text: str) -> bytes:
    """Make a PDF page with a picture that covers so many per cent of its width and height, and a text on it."""
    (folder / "a.png").write_bytes(make_picture(ARTICLE, size=(400, 400)))
    source = (
        f'#set page(width: 200pt, height: 200pt, margin: 0pt)\n#place(image("a.png", width: {share}%))\n'
        f"#place(bottom, text(size: 5pt)[{text}])"
    )
    made = typst.Compiler(source.encode(), root=folder).compile(format="pdf")
    assert isinstance(made, bytes)
    return made


def test_a_scanned_page_with_a_printed_number_is_recognised_if_that_adds_text(tmp_path: Path) -> None:
    scan, said = make_stamped_scan(tmp_path, 90, "Page 3"), RecognisedPage(f"{ARTICLE}\nPage 3", 0.95)
    (recognised,) = extract_file(scan, "a.pdf", recogniser=FakeRecogniser(said)).parts
    assert recognised == ("page 1 (recognised from a picture, confidence 0.95)", f"{ARTICLE}\nPage 3")
    (photograph,) = extract_file(scan, "a.pdf", recogniser=FakeRecogniser(RecognisedPage("Pag", 0.95))).parts
    assert photograph == ("page 1", "Page 3")
    for share, text in ((60, "Page 3"), (90, "word " * 60)):
        figure = FakeRecogniser(said)
        extract_file(make_stamped_scan(tmp_path, share, text), "a.pdf", recogniser=figure)
        assert figure.pictures == []
    without = extract_file(scan, "a.pdf")
    assert without.parts == [("page 1", "Page 3")]
    assert without.skipped_items == [SkippedItem(name="page 1", reason=f"text in a picture ({RECOGNITION_HINT})")]


def test_a_page_is_rendered_in_300_dpi_and_a_huge_one_within_bounds() -> None:
    recogniser = FakeRecogniser()
    content = make_pdf_file("scan")
    extract_file(content, "a.pdf", recogniser=recogniser)
    extract_file(content.replace(b"[0 0 612 792]", b"[0 0 9e9 9e4]"), "a.pdf", recogniser=recogniser)
    usual, huge = recogniser.pictures
    assert (usual.width, usual.height) == (2_550, 3_301)
    assert len(usual.pixels) == 2_550 * 3_301
    # The drawing is in the lower left corner.
    assert (usual.pixels[0], usual.pixels[-2_550]) == (255, 0)
    assert huge.width * huge.height <= MAX_PIXELS


def test_every_page_of_a_picture_is_a_place() -> None:
    content = make_picture(form="TIFF", more=[draw_picture(), draw_picture()])
    recogniser = FakeRecogniser(RecognisedPage("One.", 1.0), RecognisedPage(), RecognisedPage("Three.", 0.9))
    read = extract_file(content, "a.tiff", recogniser=recogniser)
    assert read.parts == [
        ("page 1 (recognised from a picture, confidence 0.99)", "One."),
        ("page 3 (recognised from a picture, confidence 0.90)", "Three."),
    ]
    assert read.skipped_items == [SkippedItem(name="page 2", reason="a picture (no text was recognised)")]


@pytest.mark.parametrize("form", ["PNG", "JPEG", "TIFF"])
def test_a_picture_without_text_is_refused(form: str) -> None:
    with pytest.raises(UnreadableFileError, match=r"^a picture \(no text was recognised\)$"):
        extract_file(make_picture(form=form), "a", recogniser=FakeRecogniser(RecognisedPage()))


def test_a_picture_is_seen_as_programs_show_it() -> None:
    turned, clear, deep = BytesIO(), BytesIO(), BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("L", (30, 20)).save(turned, "JPEG", exif=exif)
    Image.new("LA", (2, 2), (0, 0)).save(clear, "PNG")
    Image.new("I;16", (2, 2), 0x4000).save(deep, "PNG")
    recogniser = FakeRecogniser()
    for file in (turned, clear, deep):
        extract_file(file.getvalue(), "a", recogniser=recogniser)
    first, second, third = recogniser.pictures
    assert (first.width, first.height) == (20, 30)
    assert (second.pixels, third.pixels) == (b"\xff" * 4, b"\x40" * 4)


def make_picture_bomb(side: int) -> bytes:
    """Make a small PNG that claims to have so many pixels on each side."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0), b"IDAT" + zlib.compress(bytes(100)))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks
    )


def test_a_picture_of_too_many_pixels_is_not_decoded() -> None:
    with pytest.raises(UnreadableFileError, match=r"^a picture \(3,600 million pixels; the maximum is 100 million\)$"):
        extract_file(make_picture_bomb(60_000), "a.png", recogniser=FakeRecogniser())
    with pytest.raises(UnreadableFileError, match="damaged: not a readable picture"):
        extract_file(make_picture_bomb(600), "a.png", recogniser=FakeRecogniser())


def test_a_large_picture_is_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_PIXELS", 15_000)
    recogniser = FakeRecogniser()
    extract_file(make_picture(size=(300, 200)), "a.png", recogniser=recogniser)
    (picture,) = recogniser.pictures
    assert (picture.width, picture.height) == (150, 100)


class FakeResult(NamedTuple):
    boxes: Sequence[Sequence[tuple[float, float]]]
    txts: Sequence[str]
    scores: Sequence[float]


class FakeEngine:
    """Recognises one piece of text, and counts how many threads ask at once."""

    def __init__(self, text: str = "Word") -> None:
        self._text = text
        self._lock = Lock()
        self._now = 0
        self.most = 0

    def __call__(self, picture: object) -> FakeResult:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        with self._lock:
            self._now -= 1
        return FakeResult([[(0, 0), (90, 0), (90, 20), (0, 20)]], [self._text], [0.9])


def test_no_more_threads_pictures_and_seconds_are_used_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    monkeypatch.setattr(ocr, "_engine", lambda: engine)
    loaded: list[int] = []

    def load() -> PagePicture:
        loaded.append(1)
        return PagePicture(b"\x00", 1, 1)

    results = OcrRecogniser(RecognitionOptions(threads=2, max_pictures=20)).recognise([load] * 22)
    assert engine.most <= 2
    assert len(loaded) == 20
    assert [one.text for one in results] == ["Word"] * 20 + [""] * 2
    assert results[-1].reason == "the limit of 20 pictures with text recognition per file was reached"
    (late,) = OcrRecogniser(RecognitionOptions(seconds=-1)).recognise([load])
    assert late.reason == "text recognition took longer than -1 s for this file"
    assert len(loaded) == 20


class DirectedEngine:
    """Reads pictures that are wider than high and have a white corner at the top left; others hardly, or sideways."""

    def __call__(self, picture: np.ndarray) -> FakeResult:
        height, width, _ = picture.shape
        right, bottom = (90, 20) if width > height else (20, 90)
        score = 0.95 if picture[0, 0, 0] else 0.55
        return FakeResult([[(0, 0), (right, 0), (right, bottom), (0, bottom)]], ["Word"], [score])


@pytest.mark.parametrize("size", [(1, 3), (3, 1)])
@pytest.mark.parametrize("corner", [0, 2])
def test_a_page_that_was_scanned_in_another_direction_is_turned(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], corner: int
) -> None:
    monkeypatch.setattr(ocr, "_engine", DirectedEngine)
    pixels = bytes(255 if place == corner else 0 for place in range(3))
    (page,) = OcrRecogniser(RecognitionOptions()).recognise([lambda: PagePicture(pixels, *size)])
    assert (page.text, round(page.confidence, 2)) == ("Word", 0.95)


def test_a_page_of_which_only_punctuation_is_recognised_has_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ocr, "_engine", lambda: FakeEngine(", ."))
    (page,) = OcrRecogniser(RecognitionOptions()).recognise([lambda: PagePicture(b"\x00", 1, 1)])
    assert page == RecognisedPage()


def test_a_picture_that_is_attached_to_an_email_is_read() -> None:
    content = make_mail_file({"scan.png": make_picture(ARTICLE)})
    read = extract_file(content, "a.eml", recogniser=FakeRecogniser())
    assert read.parts[-1] == (
        "page 1 (recognised from a picture, confidence 0.95) of attachment scan.png",
        "Text.",
    )


def test_without_the_extra_files_and_pages_are_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "rapidocr", raising=False)
    assert find_recognition_options() is None
    monkeypatch.undo()
    installed = find_recognition_options()
    assert installed is not None
    assert "is recognised with up to" in describe_recognition(installed)
    assert describe_recognition(None) == f"text in pictures is not recognised: {RECOGNITION_HINT}"
    scanned, picture = tmp_path / "a.pdf", tmp_path / "b.png"
    scanned.write_bytes(make_pdf_file("One.", "scan"))
    picture.write_bytes(make_picture(ARTICLE))
    with SubprocessFileReader() as child:
        assert read_file(scanned, child).skipped_items == (
            SkippedItem(name="page 2", reason=f"no text, perhaps a scan ({RECOGNITION_HINT})"),
        )
        with pytest.raises(UnreadableFileError, match=r"^a picture \(text recognition needs Waystation's extra `ocr`"):
            read_file(picture, child)


@pytest.mark.parametrize(("memory", "reason"), [(30_000_000, "crashed"), (100_000_000, "needs too much memory")])
def test_a_recognition_that_crashes_leaves_the_text_of_the_other_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int, reason: str
) -> None:
    monkeypatch.setattr(reader, "_RECOGNITION_BYTES", memory)
    monkeypatch.setattr(reader, "_RECOGNITION_THREAD_BYTES", 0)
    file = tmp_path / "a.pdf"
    file.write_bytes(make_pdf_file("One.", "scan"))
    with SubprocessFileReader(recognition=RecognitionOptions()) as child:
        read = read_file(file, child)
    assert read.text == "[page 1]\nOne."
    assert read.skipped_items == (
        SkippedItem(name="page 2", reason=f"no text, perhaps a scan (text recognition {reason})"),
    )


def test_a_picture_is_read_in_the_confined_child(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(make_picture(ARTICLE, "Both parties agree."))
    with SubprocessFileReader(recognition=find_recognition_options()) as child:
        lines = read_file(file, child).text.splitlines()
    assert is_recognised_place(lines[0])
    assert lines[1:] == [ARTICLE, "Both parties agree."]
