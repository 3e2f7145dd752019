"""How a table with data of tasks is described: what a rewind, a fork and forgetting do with its rows, and which columns
hold text. `waystation/agents/run_tables.py` and `waystation/tasks/task_tables.py` have the descriptions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import Column, ColumnElement, Table, true

from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.value import Value


@dataclass(frozen=True)
class TextColumn:
    """A column with text in which a person may be named."""

    column: Column[str]
    place: ErasureLocation
    """What the text is called when a person is found in it."""
    parse: Callable[[str], Value] | None = None
    """Reads the stored JSON; its class says which strings are text. None: the column holds plain text."""
    where: ColumnElement[bool] = field(default_factory=true)
    """Rows to which this description applies, if the column has several."""


RewindEffect = Literal["kept", "deleted", "separate"]
ForkEffect = Literal["left", "copied", "separate"]
ForgetEffect = Literal["kept", "deleted", "separate"]
ForgetCategory = Literal["messages", "work", "documents", "audits"]


@dataclass(frozen=True, kw_only=True)
class StoredTable:
    """A table whose rows belong to an agent run (by `run_id`) or to a task (by `task_id`).

    Columns with encrypted text are encrypted and re-encrypted by their types in `waystation/store/schema.py`.
    """

    table: Table
    rewind: RewindEffect
    """What a rewind of the agent run does with rows that its withdrawn tool calls have written.

    - kept: nothing. What was said stays in the transcript, and what was paid stays paid.
    - deleted: they are deleted, by `call_id`.
    - separate: `SqlTranscriptRepository.commit_rewind` treats this table in its own way.
    """
    fork: ForkEffect
    """What a fork does with the rows of the agent runs, or of the task, that it reuses.

    - left: they stay with the original.
    - copied: the new task gets a copy under its own IDs.
    - separate: `SqlForkRepository.register_fork` treats this table in its own way.
    """
    forget: ForgetEffect
    """What happens when every word of the task is forgotten.

    - kept: the rows stay. They have no text.
    - deleted: they are deleted.
    - separate: `SqlForgetStore` treats this table in its own way.
    """
    counted_as: ForgetCategory | None = None
    """Category in which people see the number of deleted rows."""
    texts: tuple[TextColumn, ...] = ()
    """All columns that a person is searched for in and erased from."""
    call_id: Column[str] | None = None
    """Column with the tool call that wrote the row, as `{run_id}/{call_id}`: a rewind finds rows by it, and a fork
    rewrites it, and the same IDs in the row's JSON.
    """

    def __post_init__(self) -> None:
        """Check the combination.

        Raises:
            ValueError: the description contradicts itself.
        """
        name = self.table.name
        if (self.rewind == "deleted") != (self.call_id is not None):
            raise ValueError(f"{name}: a table has `call_id` if, and only if, a rewind deletes its rows")
        if self.forget == "kept" and self.texts:
            raise ValueError(f"{name}: its rows have text, so they cannot stay when their task is forgotten")
        if {"run_id", "task_id"}.isdisjoint(self.table.c.keys()):
            raise ValueError(f"{name}: its rows belong to no agent run and to no task")

    @property
    def is_of_run(self) -> bool:
        """Whether its rows belong to an agent run."""
        return "run_id" in self.table.c

    @property
    def owner(self) -> Column[str]:
        """Column with the agent run or task to which a row belongs."""
        return self.table.c.run_id if self.is_of_run else self.table.c.task_id
