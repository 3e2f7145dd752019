"""How the cells of a sheet look: what the library that reads their values does not say."""

from dataclasses import dataclass, field
from typing import NamedTuple

from waystation.documents.readers.text_runs import Height

MAX_COLUMNS = 16_384
"""Of a sheet of any program."""
ERRORS = {0: "#NULL!", 7: "#DIV/0!", 15: "#VALUE!", 23: "#REF!", 29: "#NAME?", 36: "#NUM!", 42: "#N/A", 43: "#DATA!"}
"""By the codes that files have for them."""

CellPosition = tuple[int, int]
"""Row and column of a cell, from 0."""


class TextFormat(NamedTuple):
    """Of all text in a cell."""

    height: Height = ""
    struck: bool = False


def make_text_format(*, struck: bool, height: int) -> TextFormat:
    """Of a font, whose `height` is 1 for raised and 2 for lowered text."""
    return TextFormat("raised" if height == 1 else "lowered" if height == 2 else "", struck)


@dataclass
class SheetInfo:
    """What is collected of one sheet."""

    shown: dict[CellPosition, str] = field(default_factory=dict[CellPosition, str])
    """Texts in place of those that the library has: errors, and texts of which a part is marked."""
    looks: dict[CellPosition, TextFormat] = field(default_factory=dict[CellPosition, TextFormat])
    """Of cells that are marked as a whole."""
    merged: list[tuple[CellPosition, CellPosition]] = field(default_factory=list[tuple[CellPosition, CellPosition]])
    """First and last cell of each that is merged of several."""
    hidden_rows: set[int] = field(default_factory=set[int])
    hidden_columns: set[int] = field(default_factory=set[int])
    comments: int = 0
    charts: int = 0
    text_boxes: int = 0
    """Those whose text is not read."""
    pictures: int = 0
    objects: int = 0
    boxes: list[str] = field(default_factory=list[str])
    """Texts of those that are."""

    def set_format(self, place: CellPosition, look: TextFormat) -> None:
        """Keep the look of a cell, if it has any."""
        if look != TextFormat():
            self.looks[place] = look
