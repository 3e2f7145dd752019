"""The console: results go to stdout and messages to stderr; it asks questions at a terminal, and turns errors into one
sentence with the next step and an exit code.

Everything that is printed passes through here, so that no document, model or file name can send control sequences to a
terminal.
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
    """A console on which only its own styles control the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `Console`; control characters in untrusted text are shown instead of sent."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(replace_control_characters(segment.text), segment.style)


result = PlainConsole(highlight=False, emoji=False)
progress = PlainConsole(stderr=True, highlight=False, emoji=False)


def print_message(text: str) -> None:
    """Print a message that is not a result. At a terminal, lines break between words."""
    progress.print(wrap_text(text, progress.width) if progress.is_terminal else text, markup=False, soft_wrap=True)


def wrap_text(text: str, width: int, hang: int = 0) -> str:
    """Wrap text between words, but never in a command between backticks, which could not be copied then.

    Indented lines are kept as they are. `hang`: columns by which all but the first line of each are indented.
    """
    begin = f"\n{' ' * hang}"
    return "\n".join(
        line if line[:1].isspace() or cell_len(line) <= width else begin.join(_in_lines(line, width - hang))
        for line in text.split("\n")
    )


def print_item(text: str, hang: int) -> None:
    """Print a list item; at a terminal, it continues indented on further lines."""
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
    """Print a result unchanged."""
    result.print(text, markup=False, soft_wrap=True)


def print_json(value: BaseModel | Sequence[BaseModel]) -> None:
    """Print a result for programs: one JSON value, with nothing shortened."""
    print_text(escape_control_characters_in_json(TypeAdapter(type(value)).dump_json(value, indent=2).decode()))


ON_ANY_BACKGROUND = Theme({"markdown.code": "bold cyan"})
LINE = 100
"""Maximum columns of a report at a terminal: longer lines are hard to read."""


def print_markdown(text: str) -> None:
    """Print a report: formatted for reading at a terminal, else unchanged. Its text is neither our markup nor HTML."""
    if not sys.stdout.isatty():
        print_text(text)
        return
    # Only reports need this import, and every command waits for the imports above.
    from rich.markdown import Markdown  # noqa: PLC0415

    from waystation.documents.citations import with_plain_places  # noqa: PLC0415
    from waystation.reports.markdown import build_safe_markdown_parser, sanitize_markdown  # noqa: PLC0415

    page = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    page.parsed = build_safe_markdown_parser().parse(sanitize_markdown(with_plain_places(text)))
    with result.use_theme(ON_ANY_BACKGROUND):
        result.print(page, width=min(result.width, LINE))


def print_verbatim(text: str) -> None:
    """Print a text that must be identical in a file; a terminal gets it as `print_text` prints it, without a final
    newline.
    """
    sys.stdout.write(replace_control_characters(text) if sys.stdout.isatty() else text)


def show_spinner(words: str) -> AbstractContextManager[object]:
    """Show at a terminal that work is in progress."""
    return progress.status(words) if progress.is_terminal else nullcontext()


def can_ask() -> bool:
    """Return whether a person is at a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


async def prompt_line(question: str) -> str:
    """Read one line from the terminal without blocking the event loop."""
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
    """Ask the person at the terminal to confirm something that cannot be undone. Raises BadInput without a terminal."""
    if not can_ask():
        raise BadInput("this cannot be undone, and there is no terminal to ask for confirmation: add --yes")
    return (await prompt_line(question)).casefold() in {"y", "yes"}


OK, WORK_FAILED, BAD_USAGE, UNREACHABLE = 0, 1, 2, 3


def get_error_exit_code(error: Exception) -> int:
    """Return the exit code. 1: the work failed; 2: invalid input; 3: something required is unreachable."""
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
    """Format the error in one line. Unforeseen errors are named by kind only: their text may quote anything."""
    match error:
        case WaystationError():
            return " ".join(str(error).split())
        case ValidationError():
            return _faults(error)
        case OSError():
            home = _unusable_home(error)
            if home is not None:
                reason = error.strerror or type(error).__name__
                return f"the home folder {home} cannot be used ({reason}): set WAYSTATION_HOME to a folder that you own"
            return f"{error.strerror or type(error).__name__}: {error.filename}" if error.filename else str(error)
        case _:
            return (
                f"an unexpected error ({type(error).__name__}); run the command again with --debug to see where it "
                "happened"
            )


def _faults(error: ValidationError) -> str:
    if error.title != "Settings":
        return "; ".join(f"{_place(fault.place)}: {fault.words}" for fault in extract_validation_faults(error))
    # The settings take a while to load, and help should not wait for them.
    from waystation.config.settings import format_setting_errors  # noqa: PLC0415

    return format_setting_errors(error)


def _unusable_home(error: OSError) -> Path | None:
    """Return the home folder if the error is about it, a folder above it or a file in it."""
    from waystation.config.settings import Settings  # noqa: PLC0415

    if not isinstance(error.filename, str):
        return None
    place, home = Path(error.filename), Settings().home
    return home if place.is_relative_to(home) or home.is_relative_to(place) else None


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the request"
