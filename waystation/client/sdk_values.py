"""The values that the SDK returns to scripts and notebooks: tasks, requests, reports and rows, each of which prints
well.
"""

from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from html import escape
from importlib import import_module
from typing import Any, Generic, TypeVar, overload

from waystation.client.task_json import TaskJson, build_task_json
from waystation.kernel.amount import format_amount, format_limit
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.reports.markdown import render_report_html
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import PendingApproval, TaskView

_RowT = TypeVar("_RowT", bound=Value)
MAX_TABLE_COLUMNS, MAX_CELL_CHARACTERS = 9, 120
"""Columns of a table in a notebook; characters of a cell."""


class ValueRows(Sequence[_RowT], Generic[_RowT]):
    """Rows that print as a table and convert to a data frame."""

    def __init__(self, rows: Sequence[_RowT]) -> None:
        self._rows = tuple(rows)

    @overload
    def __getitem__(self, at: int) -> _RowT: ...
    @overload
    def __getitem__(self, at: slice) -> "ValueRows[_RowT]": ...
    def __getitem__(self, at: int | slice) -> "_RowT | ValueRows[_RowT]":
        """Return a row, or a slice of them."""
        return ValueRows(self._rows[at]) if isinstance(at, slice) else self._rows[at]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[_RowT]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self._rows)) or "(none)"

    def to_frame(self) -> Any:
        """Return a pandas `DataFrame`; nested fields become columns with dotted names.

        Raises BadInput without pandas.
        """
        try:
            pandas = import_module("pandas")
        except ModuleNotFoundError:
            raise BadInput("a data frame needs pandas: `pip install pandas`") from None
        return pandas.json_normalize([row.model_dump() for row in self._rows])

    def _repr_html_(self) -> str:
        return render_html_table(self._rows)


def render_html_table(rows: Sequence[Value]) -> str:
    """Render a table for notebooks. All cells are escaped, whoever wrote them."""
    names = (
        [] if not rows else [name for name in type(rows[0]).model_fields if _is_shown(rows, name)][:MAX_TABLE_COLUMNS]
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(_cell(getattr(row, name)) for name in names)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _is_shown(rows: Sequence[Value], name: str) -> bool:
    return any(isinstance(getattr(row, name), str | int | float | date | timedelta) for row in rows)


def _cell(value: object) -> str:
    words = replace_control_characters("" if value is None else str(value))
    return f"<td>{escape(words if len(words) <= MAX_CELL_CHARACTERS else f'{words[:MAX_CELL_CHARACTERS]}…')}</td>"


class TaskSnapshot(Value):
    """A task as it was when it was fetched."""

    task_id: str
    phase: TaskPhase
    title: str
    """The redacted question, shortened."""
    session: str
    submitted_at: datetime | None
    ended_at: datetime | None
    spent: str
    budget: str
    waiting: int
    """Number of unanswered requests."""
    details: TaskJson
    """Everything that `waystation show --json` prints."""

    @classmethod
    def from_view(cls, view: TaskView) -> "TaskSnapshot":
        """Build a snapshot from a task view."""
        progress = view.progress
        return cls(
            task_id=progress.task_id,
            phase=progress.phase,
            title=progress.title,
            session=view.session,
            submitted_at=view.submitted_at,
            ended_at=view.ended_at,
            spent=format_amount(progress.budget.spent),
            budget=format_limit(progress.budget.limit),
            waiting=0 if progress.phase.over else sum(one.decision == "pending" for one in progress.approvals),
            details=build_task_json(view, None),
        )

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self.phase.over

    def __str__(self) -> str:
        return replace_control_characters(f"{self.task_id} {self.phase}: {self.spent} of {self.budget}; {self.title}")

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return render_html_table([self])


class ApprovalSnapshot(Value):
    """Something that waits for an answer: a budget, a tool call or a plan."""

    task_id: str
    request_id: str
    agent: str
    asks_for: str
    answer_by: datetime | None
    title: str

    @classmethod
    def from_pending(cls, one: PendingApproval) -> "ApprovalSnapshot":
        """Build a snapshot from a pending approval."""
        asked = one.approval
        wants = format_amount(asked.asked) if not asked.asked.is_zero else "agreement to its plan"
        return cls(
            task_id=one.task_id,
            request_id=asked.request_id,
            agent=asked.agent,
            asks_for=wants if asked.action is None else f"{asked.action.tool}: {asked.action.text}",
            answer_by=asked.answer_by,
            title=one.title,
        )

    def __str__(self) -> str:
        return replace_control_characters(f"{self.request_id} of {self.task_id} asks for {self.asks_for}")

    def __repr__(self) -> str:
        return str(self)


class Report(Value):
    """A report as Markdown."""

    task_id: str
    phase: TaskPhase
    markdown: str

    def __str__(self) -> str:
        return self.markdown

    def _repr_html_(self) -> str:
        return render_report_html(self.markdown)
