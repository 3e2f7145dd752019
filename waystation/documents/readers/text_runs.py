"""Renders texts that consist of runs, as in slides and sheets, with marks for raised, lowered and struck-out text."""

from collections.abc import Iterable
from itertools import groupby
from typing import Literal, NamedTuple

from waystation.documents.readers.html import format_strikethrough, format_subscript, format_superscript

Height = Literal["", "raised", "lowered"]


class TextRun(NamedTuple):
    """Text with a uniform format."""

    text: str
    height: Height = ""
    struck: bool = False


def render_text_runs(runs: Iterable[TextRun]) -> str:
    """Join the runs, with `^` and `_` before raised and lowered text, and `~~` around struck-out text."""
    joined = [
        TextRun("".join(run.text for run in alike), height, struck)
        for (height, struck), alike in groupby((run for run in runs if run.text), lambda run: run[1:])
    ]
    texts = [_placed(joined, place) for place in range(len(joined))]
    lines: list[str] = []
    for is_struck, group in groupby(range(len(joined)), lambda place: joined[place].struck):
        text = "".join(texts[place] for place in group)
        lines.append("\n".join(map(format_strikethrough, text.split("\n"))) if is_struck else text)
    return "".join(lines)


def _placed(runs: list[TextRun], place: int) -> str:
    text, height, _ = runs[place]
    core = text.strip()
    if not height or not core:
        return text
    before = runs[place - 1].text[-1:] if place and text[0] == core[0] else ""
    behind = runs[place + 1].text[:1] if place + 1 < len(runs) and text[-1] == core[-1] else ""
    return text.replace(
        core, format_superscript(core, before, behind) if height == "raised" else format_subscript(core, behind)
    )
