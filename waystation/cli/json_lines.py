"""Files with one JSON object a line, with file and line in every complaint."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from waystation.cli.context.files import read_text
from waystation.domain.errors import BadInput
from waystation.domain.malformed import malformed
from waystation.domain.value import Value

_T = TypeVar("_T", bound=Value)


def read_lines(path: Path, option: str, kind: type[_T]) -> Mapping[int, _T]:
    """What the lines are, by their numbers; empty ones are left out. Raises BadInput."""
    lines = enumerate(read_text(path, option).split("\n"), 1)
    found = {number: _read(path, number, text, kind) for number, text in lines if text.strip()}
    if not found:
        raise BadInput(f"{option} {path} is empty: it takes a JSON object a line")
    return found


def bad_line(path: Path, number: int, why: str) -> BadInput:
    """To be raised."""
    return BadInput(f"{path}, line {number}: {why}")


def _read(path: Path, number: int, text: str, kind: type[_T]) -> _T:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        # Without what it validated: a line may have anything.
        faults = [f"{'.'.join(map(str, fault.place))}: {_said(fault.words)}" for fault in malformed(error)]
        raise bad_line(path, number, "; ".join(fault.removeprefix(": ") for fault in faults)) from None


def _said(words: str) -> str:
    return "no JSON object" if words.startswith("Invalid JSON") else words
