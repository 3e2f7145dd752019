"""Excel files and OpenDocument tables to text: one part a sheet, one line a row, the values that the cells show."""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from io import BytesIO

from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetVisibleEnum

from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.domain.documents import LeftOut

Cell = int | float | str | bool | time | date | datetime | timedelta


def sheets_extract(content: bytes) -> Extract:
    """The visible sheets; hidden ones are left out and named. Raises Unreadable."""
    try:
        with CalamineWorkbook.from_filelike(BytesIO(content)) as book:
            sheets = book.sheets_metadata
            parts = [
                Part(f"sheet {sheet.name}", "\n".join(_rows(book.get_sheet_by_name(sheet.name))))
                for sheet in sheets
                if sheet.visible == SheetVisibleEnum.Visible
            ]
    except PasswordError as error:
        raise Unreadable("protected by a password; save it without one") from error
    except CalamineError as error:
        raise Unreadable("damaged: no table that can be read") from error
    hidden = [sheet.name for sheet in sheets if sheet.visible != SheetVisibleEnum.Visible]
    return Extract(parts, [LeftOut(name=f"sheet {name}", reason="hidden; show it to have it read") for name in hidden])


def _rows(sheet: CalamineSheet) -> Iterator[str]:
    for row in sheet.iter_rows():
        if line := _line(row):
            yield line


def _line(row: Sequence[Cell]) -> str:
    cells = [_shown(cell) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)


def _shown(cell: Cell) -> str:
    match cell:
        case bool():
            return str(cell).upper()
        case float():
            # As many digits as the program itself shows: 0.1 + 0.2 is 0.3 there, and 3.0 is 3.
            return f"{cell:.15g}"
        case datetime():
            return cell.isoformat(" ", "minutes" if not cell.second else "seconds")
        case date() | time():
            return cell.isoformat()
        case int() | timedelta():
            return str(cell)
        case str():
            return " ".join(cell.split())
