"""What an error means to a person: one sentence with the next step, and an exit code."""

from pathlib import Path

from pydantic_core import ValidationError

from waystation.domain.errors import BadInput, RequestConflict, StoreUnavailable, Unreachable, WaystationError, WrongKey
from waystation.domain.malformed import malformed

OK, WORK_FAILED, BAD_USAGE, UNREACHABLE = 0, 1, 2, 3


def exit_code(error: Exception) -> int:
    """1: the work failed; 2: what was given cannot be used; 3: something needed is not reachable."""
    match error:
        case BadInput() | RequestConflict() | WrongKey() | ValidationError():
            return BAD_USAGE
        case Unreachable() | StoreUnavailable():
            return UNREACHABLE
        case OSError() if _unusable_home(error) is not None:
            return UNREACHABLE
        case _:
            return WORK_FAILED


def sentence(error: Exception) -> str:
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
        return "; ".join(f"{_place(fault.place)}: {fault.words}" for fault in malformed(error))
    # The settings take their time to load: whoever asks for help should not wait for them.
    from waystation.faults import faults  # noqa: PLC0415

    return faults(error)


def _unusable_home(error: OSError) -> Path | None:
    """The home folder, where the error is about it, a folder above it or a file in it."""
    from waystation.settings import Settings  # noqa: PLC0415

    if not isinstance(error.filename, str):
        return None
    place, home = Path(error.filename), Settings().home
    return home if place.is_relative_to(home) or home.is_relative_to(place) else None


def _place(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "the request"
