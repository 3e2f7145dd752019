"""Reads form fields and added texts on the pages of a PDF; reports stamps, comments, hidden fields and files."""

import ctypes
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol, cast

from pypdfium2 import raw

from waystation.documents.documents import SkippedItem

_NO_COMMENTS = frozenset(
    {raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP, raw.FPDF_ANNOT_WIDGET, raw.FPDF_ANNOT_FILEATTACHMENT}
)
_UNSEEN = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
_CHECKED = frozenset({raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON})
_VALUED = frozenset({raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX})
_MAX_ANNOTATIONS = 5_000
"""Maximum annotations of a page that are examined, and bytes of one text."""


class _Functions(Protocol):
    """The used part of the library, which has no types."""

    def FPDF_GetFormType(self, document: object) -> int: ...
    def FPDFDoc_GetAttachmentCount(self, document: object) -> int: ...
    def FPDFDoc_GetAttachment(self, document: object, index: int) -> object: ...
    def FPDFAttachment_GetName(self, attachment: object, buffer: object, length: int) -> int: ...
    def FPDFPage_GetAnnotCount(self, page: object) -> int: ...
    def FPDFPage_GetAnnot(self, page: object, index: int) -> object: ...
    def FPDFPage_CloseAnnot(self, note: object) -> None: ...
    def FPDFAnnot_GetSubtype(self, note: object) -> int: ...
    def FPDFAnnot_GetFlags(self, note: object) -> int: ...
    def FPDFAnnot_GetStringValue(self, note: object, key: bytes, buffer: object, length: int) -> int: ...
    def FPDFAnnot_GetFormFieldType(self, form: object, note: object) -> int: ...
    def FPDFAnnot_GetFormFieldName(self, form: object, note: object, buffer: object, length: int) -> int: ...
    def FPDFAnnot_GetFormFieldAlternateName(self, form: object, note: object, buffer: object, length: int) -> int: ...
    def FPDFAnnot_GetFormFieldValue(self, form: object, note: object, buffer: object, length: int) -> int: ...
    def FPDFAnnot_GetFormFieldExportValue(self, form: object, note: object, buffer: object, length: int) -> int: ...
    def FPDFAnnot_IsChecked(self, form: object, note: object) -> int: ...


_PDFIUM = cast("_Functions", raw)


class PageAnnotationSummary(NamedTuple):
    """What was found on a page."""

    text: str = ""
    """Form fields with their values, one on each line, and added texts."""
    comments: int = 0
    struck: int = 0
    """Passages that a comment strikes out."""
    stamps: int = 0
    files: int = 0
    hidden: int = 0
    """Fields and texts that no reader sees."""


class _Form(Protocol):
    raw: object


class _Page(Protocol):
    raw: object


class _Document(Protocol):
    raw: object
    formenv: _Form | None

    def init_forms(self) -> None: ...


def load_form(document: object) -> object:
    """Return the handle for reading form fields; None if there are none. Must be called before a page is loaded."""
    opened = cast("_Document", document)
    if _PDFIUM.FPDF_GetFormType(opened.raw) == raw.FORMTYPE_NONE:
        return None
    opened.init_forms()
    return opened.formenv.raw if opened.formenv else None


def read_page_annotations(loaded: object, form: object) -> PageAnnotationSummary:
    """Read the annotations of a page."""
    page = cast("_Page", loaded).raw
    fields: list[str] = []
    added: list[str] = []
    comments = struck = stamps = files = hidden = 0
    for index in range(min(_PDFIUM.FPDFPage_GetAnnotCount(page), _MAX_ANNOTATIONS)):
        note = _PDFIUM.FPDFPage_GetAnnot(page, index)
        kind = _PDFIUM.FPDFAnnot_GetSubtype(note)
        said = _text(lambda at, size, note=note: _PDFIUM.FPDFAnnot_GetStringValue(note, b"Contents", at, size))
        field = _field(form, note) if form and kind == raw.FPDF_ANNOT_WIDGET else ""
        text = said if kind == raw.FPDF_ANNOT_FREETEXT else ""
        if _PDFIUM.FPDFAnnot_GetFlags(note) & _UNSEEN:
            hidden += bool(field or text)
        else:
            fields += [field] if field else []
            added += [text] if text else []
            struck += kind == raw.FPDF_ANNOT_STRIKEOUT
            stamps += kind == raw.FPDF_ANNOT_STAMP
        files += kind == raw.FPDF_ANNOT_FILEATTACHMENT
        comments += bool(said and not text) and kind not in _NO_COMMENTS
        _PDFIUM.FPDFPage_CloseAnnot(note)
    titled = (("Form fields:", fields), ("Added to the page:", added))
    blocks = ["\n".join([title, *dict.fromkeys(lines)]) for title, lines in titled if lines]
    return PageAnnotationSummary("\n\n".join(blocks), comments, struck, stamps, files, hidden)


def _field(form: object, note: object) -> str:
    """Return `name: value`; empty if nothing was filled in."""
    kind = _PDFIUM.FPDFAnnot_GetFormFieldType(form, note)
    if kind in _CHECKED:
        # The meaning of each choice is only in its name in the file.
        ticked = _PDFIUM.FPDFAnnot_IsChecked(form, note)
        value = _of_field(_PDFIUM.FPDFAnnot_GetFormFieldExportValue, form, note) if ticked else ""
    else:
        value = _of_field(_PDFIUM.FPDFAnnot_GetFormFieldValue, form, note) if kind in _VALUED else ""
    if not value:
        return ""
    name = _of_field(_PDFIUM.FPDFAnnot_GetFormFieldAlternateName, form, note)
    return f"{name or _of_field(_PDFIUM.FPDFAnnot_GetFormFieldName, form, note)}: {value}"


def _of_field(ask: Callable[[object, object, object, int], int], form: object, note: object) -> str:
    return _text(lambda at, size: ask(form, note, at, size))


def _text(ask: Callable[[object, int], int]) -> str:
    """Return what the library writes into a buffer of the size that it asks for."""
    size = ask(None, 0)
    if size <= 2:
        return ""
    place = ctypes.create_string_buffer(size)
    written = ask(ctypes.cast(place, ctypes.POINTER(ctypes.c_ushort)), size)
    return " ".join(place.raw[: max(0, written - 2)].decode("utf-16-le", "replace").split())


def list_attachments(document: object) -> Iterator[SkippedItem]:
    """Yield the attached files of a PDF."""
    opened = cast("_Document", document).raw
    for index in range(min(_PDFIUM.FPDFDoc_GetAttachmentCount(opened), _MAX_ANNOTATIONS)):
        found = _PDFIUM.FPDFDoc_GetAttachment(opened, index)
        name = _text(lambda at, size, found=found: _PDFIUM.FPDFAttachment_GetName(found, at, size))
        yield SkippedItem(name=f"attachment {name or index + 1}", reason="a file inside the PDF; submit it separately")
