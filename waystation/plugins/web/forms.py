"""Submitted forms, and forms that are shown again: with their values, errors at their fields, and files that were left
out.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import ValidationError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException

from waystation.documents.documents import SkippedItem
from waystation.kernel.errors import BadInput, InvalidFieldError
from waystation.plugins.web.request_bodies import format_fault_message
from waystation.security.untrusted import sanitize_line

WHOLE_FORM = ""
"""Field name of errors that belong to no field, such as an unreachable server."""
_LABELS: Mapping[str, str] = {
    "question": "Question",
    "documents": "Documents",
    "session": "Session",
    "budget": "Budget",
    "add": "Amount",
    "message": "Message",
    "by": "Your name",
    "note": "Note",
    "step": "Step",
    "days": "Days until it expires",
    "length": "Length of the report",
    "mode": "When the budget is spent",
    "preset": "Preset",
    "instructions": "Instructions for the agents",
    "accept": "What the report must meet",
    "title": "Title",
    "goal": "Goal",
    "share": "Share",
    "paths": "Files or folders",
    "every": "Every",
    "at": "At",
    "cron": "Other times",
    "zone": "Time zone",
    "monthly": "Budget of a month",
    "name": "Name",
    "confirm": "Name of the session",
}
"""Labels of visible fields, by name."""
_EMPTY = "String should have at least 1 character"


@dataclass(frozen=True)
class RejectedForm:
    """A form that was not accepted."""

    form: str = ""
    """Id of the form on its page; empty: none was sent."""
    typed: Mapping[str, str] = field(default_factory=dict[str, str])
    faults: Mapping[str, str] = field(default_factory=dict[str, str])
    """Errors by field name, as sentences."""
    skipped_items: Sequence[SkippedItem] = ()
    """Files that cannot be used, and parts of files: the others would be accepted."""
    status: int = 0
    """Status of the response; 0: none was sent."""
    reason: str = ""
    """All errors, in one line."""
    task_id: str = ""
    """Task that the error of the whole form is about, whose page is linked there; empty: none."""

    def value(self, form: str, name: str) -> str:
        """Return the typed value of a field; empty if that form was not sent."""
        return self.typed.get(name, "") if form == self.form else ""

    def fault(self, form: str, name: str = WHOLE_FORM) -> str:
        """Return the error of a field; empty if there is none."""
        return format_sentence(self.faults.get(name, "")) if form == self.form else ""

    def has_any(self, form: str, names: Sequence[str]) -> bool:
        """Return whether one of these fields has a value or an error."""
        return any(self.value(form, name) or self.fault(form, name) for name in names)

    @property
    def labelled_values(self) -> Mapping[str, str]:
        """Typed values by label, for a page that no longer has the form."""
        labels = {name: _find_label(name) for name in self.typed}
        return {label: text for name, text in self.typed.items() if text and (label := labels[name])}


def _find_label(name: str) -> str:
    """Return the label of a visible field, with the number of its step; empty if there is none."""
    base, _, number = name.partition("-")
    label = _LABELS.get(base, "")
    return f"{label} of step {number}" if label and number.isdecimal() else "" if number else label


NO_REJECTED_FORM = RejectedForm()


class FormValidationError(HTTPException):
    """A form with invalid fields."""

    def __init__(
        self, faults: Mapping[str, str], left_out: Sequence[SkippedItem] = (), status: int = 400, task_id: str = ""
    ) -> None:
        """Build the error, with faults by field name. `task_id`: task that the error is about."""
        super().__init__(status, "; ".join(faults.values()))
        self.faults, self.left_out, self.task_id = faults, left_out, task_id


_T = TypeVar("_T")


class FormErrorCollector:
    """Collects the errors of a form's fields, so that a person sees all of them at once."""

    def __init__(self) -> None:
        self._found: dict[str, str] = {}
        self.skipped_items: Sequence[SkippedItem] = ()

    @contextmanager
    def collecting_errors_of(self, name: str) -> Generator[None]:
        """Collect bad input raised in the block as an error of this field."""
        try:
            yield
        except InvalidFieldError as error:
            self._found.setdefault(error.field if error.field in _LABELS else name, str(error))
        except BadInput as error:
            self._found.setdefault(name, str(error))

    def build_or_raise(self, make: Callable[[], _T]) -> _T:
        """Return the result of `make`. Raises FormValidationError with all errors, if there are any."""
        try:
            made = make()
        except ValidationError as error:
            self._found = {**extract_field_errors(error), **self._found}
            raise self.error from None
        self.raise_if_any()
        return made

    @property
    def error(self) -> FormValidationError:
        """All collected errors."""
        return FormValidationError(self._found, self.skipped_items)

    def raise_if_any(self) -> None:
        """Raise FormValidationError if there are any errors."""
        if self._found:
            raise self.error


def extract_field_errors(error: ValidationError) -> dict[str, str]:
    """Return the first error of each field, without the given values.

    Errors of fields that the form does not show belong to the whole form.
    """
    found: dict[str, str] = {}
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        place = str(fault["loc"][0]) if fault["loc"] else WHOLE_FORM
        words = "this is empty" if fault["msg"] == _EMPTY else format_fault_message(fault["type"], fault["msg"])
        found.setdefault(*((place, words) if place in _LABELS else (WHOLE_FORM, f"{sanitize_line(place)}: {words}")))
    return found


def format_sentence(words: str) -> str:
    """Format the text as a sentence of its own."""
    if not words:
        return ""
    first = words[0] if words.startswith("task-") else words[0].upper()
    return f"{first}{words[1:]}{'' if words.endswith(('.', '!', '?')) else '.'}"


def extract_form_texts(form: FormData) -> dict[str, str]:
    """Return the text fields of a form, by name."""
    return {name: value for name, value in form.items() if isinstance(value, str) and name != "mark"}


def build_rejected_form(
    form: str, typed: Mapping[str, str], error: Exception, status: int, reason: str
) -> RejectedForm:
    """Build the form with its errors. `reason`: the error in words."""
    faults, left_out, task_id = {WHOLE_FORM: reason}, (), ""
    if isinstance(error, FormValidationError):
        faults, left_out, task_id = error.faults, error.left_out, error.task_id
    elif isinstance(error, ValidationError):
        faults = extract_field_errors(error)
    return RejectedForm(form, typed, faults, left_out, status, reason, task_id)
