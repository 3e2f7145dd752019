"""Where output goes: results to stdout, everything said on the way to stderr; and questions at a terminal.

Whatever is printed passes here, so that no document, model or name of a file steers anybody's terminal.

What an error means to a person: one sentence with the next step, and an exit code.
"""

import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pydantic import BaseModel, TypeAdapter
from pydantic_core import ValidationError
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.theme import Theme

from waystation.kernel.errors import (
    BadInput,
    MemoryUnavailable,
    RequestConflict,
    StoreUnavailable,
    Unreachable,
    WaystationError,
    WrongKey,
)
from waystation.kernel.value import extract_validation_faults
from waystation.security.untrusted import escape_control_characters_in_json, replace_control_characters


class PlainConsole(Console):
    """A console on which only its own styles steer the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console`; what is foreign in the words is shown instead of sent."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(replace_control_characters(segment.text), segment.style)


result = PlainConsole(highlight=False, emoji=False)
progress = PlainConsole(stderr=True, highlight=False, emoji=False)


def print_message(text: str) -> None:
    """Tell the person something that is no result. At a terminal its lines end between words."""
    progress.print(wrap_text(text, progress.width) if progress.is_terminal else text, markup=False, soft_wrap=True)


def wrap_text(text: str, width: int, hang: int = 0) -> str:
    """The text with lines that end between words, and never in a command between backticks, which would be no command
    then. What is indented is set already. `hang`: columns by which all but the first line of each are indented.
    """
    begin = f"\n{' ' * hang}"
    return "\n".join(
        line if line[:1].isspace() or cell_len(line) <= width else begin.join(_in_lines(line, width - hang))
        for line in text.split("\n")
    )


def print_item(text: str, hang: int) -> None:
    """Print a line of a list; at a terminal what does not fit goes on below, indented."""
    print_text(wrap_text(text, result.width, hang) if result.is_terminal else text)


def _in_lines(line: str, width: int) -> Iterable[str]:
    begun = ""
    for word in _words(line):
        if begun and cell_len(begun) + 1 + cell_len(word) > width:
            yield begun
            begun = word
        else:
            begun = f"{begun} {word}" if begun else word
    yield begun


_HELD = "\0"


def _words(line: str) -> list[str]:
    parts = line.split("`")
    for command in range(1, len(parts) - 1, 2):
        parts[command] = parts[command].replace(" ", _HELD)
    return [word.replace(_HELD, " ") for word in "`".join(parts).split(" ")]


def print_text(text: str) -> None:
    """Print a result as it is."""
    result.print(text, markup=False, soft_wrap=True)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Print a result for programs: one JSON value, which says everything as it is."""
    print_text(escape_control_characters_in_json(TypeAdapter(type(value)).dump_json(value, indent=2).decode()))


ON_ANY_BACKGROUND = Theme({"markdown.code": "bold cyan"})
LINE = 100
"""Columns of a report at a terminal, at most: longer lines are hard to read."""


def print_markdown(text: str) -> None:
    """Print a report: set for reading at a terminal, else as it is. What it says is no markup of ours or of HTML."""
    if not sys.stdout.isatty():
        print_text(text)
        return
    # Only reports are read so, and every command waits for what is imported above.
    from rich.markdown import Markdown  # noqa: PLC0415

    from waystation.documents.citations import with_plain_places  # noqa: PLC0415
    from waystation.reports.markdown import build_safe_markdown_parser, sanitize_markdown  # noqa: PLC0415

    page = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    page.parsed = build_safe_markdown_parser().parse(sanitize_markdown(with_plain_places(text)))
    with result.use_theme(ON_ANY_BACKGROUND):
        result.print(page, width=min(result.width, LINE))


def print_verbatim(text: str) -> None:
    """Print a text that is to be the same in a file; a terminal gets it as `print_text` has it, without a line end."""
    sys.stdout.write(replace_control_characters(text) if sys.stdout.isatty() else text)


def show_spinner(words: str) -> AbstractContextManager[object]:
    """Show at a terminal that something goes on."""
    return progress.status(words) if progress.is_terminal else nullcontext()


def can_ask() -> bool:
    """Whether a person sits at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def prompt_line(question: str) -> str:
    """One line from the terminal; the event loop goes on meanwhile."""
    progress.print(question, markup=False, end=" ", soft_wrap=True)
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def ask_confirmation(question: str) -> bool:
    """Whether the person at the terminal says yes to what cannot be undone. Raises BadInput where nobody sits there."""
    if not can_ask():
        raise BadInput("this cannot be undone, and nobody can be asked here: say --yes")
    return (await prompt_line(question)).casefold() in {"y", "yes"}


OK, WORK_FAILED, BAD_USAGE, UNREACHABLE = 0, 1, 2, 3


def get_error_exit_code(error: Exception) -> int:
    """1: the work failed; 2: what was given cannot be used; 3: something needed is not reachable."""
    match error:
        case BadInput() | RequestConflict() | WrongKey() | ValidationError():
            return BAD_USAGE
        case Unreachable() | StoreUnavailable() | MemoryUnavailable():
            return UNREACHABLE
        case OSError() if _unusable_home(error) is not None:
            return UNREACHABLE
        case _:
            return WORK_FAILED


def format_error(error: Exception) -> str:
    """The error in one line. Of errors that nobody foresaw only the kind: their text may quote anything."""
    match error:
        case WaystationError():
            return " ".join(str(error).split())
        case ValidationError():
            return _faults(error)
        case OSError():
            home = _unusable_home(error)
            if home is not None:
                reason = error.strerror or type(error).__name__
                return f"the home folder {home} cannot be used ({reason}): set WAYSTATION_HOME to a folder of yours"
            return f"{error.strerror or type(error).__name__}: {error.filename}" if error.filename else str(error)
        case _:
            return f"an error that should not happen ({type(error).__name__}); run the command again with --debug"


def _faults(error: ValidationError) -> str:
    if error.title != "Settings":
        return "; ".join(f"{_place(fault.place)}: {fault.words}" for fault in extract_validation_faults(error))
    # The settings take their time to load: whoever asks for help should not wait for them.
    from waystation.config.settings import format_setting_errors  # noqa: PLC0415

    return format_setting_errors(error)


def _unusable_home(error: OSError) -> Path | None:
    """The home folder, where the error is about it, a folder above it or a file in it."""
    from waystation.config.settings import Settings  # noqa: PLC0415

    if not isinstance(error.filename, str):
        return None
    place, home = Path(error.filename), Settings().home
    return home if place.is_relative_to(home) or home.is_relative_to(place) else None


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the request"
