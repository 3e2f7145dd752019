"""Formats and other properties of the cells of a sheet that the spreadsheet library does not report."""

from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.documents.readers.text_runs import Height

MAX_COLUMNS = 16_384
"""Maximum columns of a sheet in any program."""
ERRORS = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!", 42: "#N/A", 43: "#DATA!"}
"""Errors by their codes in files."""

CellPosition = tuple[int, int]
"""Row and column of a cell, from 0."""


class TextFormat(NamedTuple):
    """Format of all text in a cell."""

    height: Height = ""
    struck: bool = False


def make_text_format(*, struck: bool, height: int) -> TextFormat:
    """Build the format of a font, whose `height` is 1 for raised and 2 for lowered text."""
    return TextFormat("raised" if height == 1 else "lowered" if height == 2 else "", struck)


@dataclass
class SheetInfo:
    """Collected properties of one sheet."""

    shown: dict[CellPosition, str] = field(default_factory=dict[CellPosition, str])
    """Texts that replace the library's: errors, and texts that are partly marked."""
    looks: dict[CellPosition, TextFormat] = field(default_factory=dict[CellPosition, TextFormat])
    """Formats of cells that are marked as a whole."""
    merged: list[tuple[CellPosition, CellPosition]] = field(default_factory=list[tuple[CellPosition, CellPosition]])
    """First and last cell of each merged cell."""
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    comments: int = 0
    charts: int = 0
    text_boxes: int = 0
    """Number of text boxes whose text is not read."""
    pictures: int = 0
    objects: int = 0
    boxes: list[str] = field(default_factory=list[str])
    """Texts of those that are."""

    def set_format(self, place: CellPosition, look: TextFormat) -> None:
        """Store the format of a cell unless it is the default."""
        if look != TextFormat():
            self.looks[place] = look
