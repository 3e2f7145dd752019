"""The parent's side of the child that reads files: one that breaks its parser is one file less, no more."""

from types import TracebackType
from typing import Self

from pydantic import TypeAdapter, ValidationError

from waystation.adapters.documents.extract import BREAKS, MEMORY, Extracted, FileGiven, Refused, Unreadable
from waystation.children import Child, ChildFailed, ChildHung

SECONDS_A_FILE = 60.0
READER = "waystation.adapters.documents.reader_child"
_ANSWER = TypeAdapter[Extracted | Refused](Extracted | Refused)


class ParserBroke(Unreadable):
    """A file did to its parser what nobody foresaw."""


class ChildReader:
    """Reads files one after another in one child, which is started for the first and again after each that broke it.

    A context manager: the child ends with it, and with this program however that ends.
    """

    def __init__(self, seconds_a_file: float = SECONDS_A_FILE) -> None:
        self._seconds = seconds_a_file
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """Of the child, while there is one."""
        return self._child.pid if self._child else None

    def read(self, file: int, given: FileGiven) -> Extracted:
        """The text of an open file, of which nothing is looked at here.

        Raises:
            ParserBroke: the parser crashed, hung or ran out of memory.
            Unreadable: the file is of no kind that can be read, damaged, or protected.
        """
        try:
            return self._read_once(file, given)
        except ParserBroke as broke:
            # One attachment must not take the message down.
            try:
                return self._read_once(file, given.model_copy(update={"attachments": False}))
            except Unreadable as unreadable:
                raise (broke if str(unreadable) == BREAKS else unreadable) from None

    def _read_once(self, file: int, given: FileGiven) -> Extracted:
        try:
            said = self._running().ask(given.model_dump_json().encode(), self._seconds, [file])
            answer = _ANSWER.validate_json(said)
        except (ChildFailed, ValidationError) as failed:
            self._end()
            hung = isinstance(failed, ChildHung)
            why = f"took longer than {self._seconds:g} s" if hung else "its parser crashed; the file may be damaged"
            raise ParserBroke(f"could not be read ({why})") from None
        if isinstance(answer, Refused):
            raise Unreadable(answer.reason)
        return answer

    def _running(self) -> Child:
        if self._child is None or not self._child.alive:
            self._end()
            self._child = Child(READER, MEMORY)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.end()
