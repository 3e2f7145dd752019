"""What the SDK adds to the views of tasks for scripts and notebooks: tables, data frames, rendered reports."""

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from html import escape
from importlib import import_module
from typing import Any, Generic, Self, TypeVar, overload

from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.reports.markdown import render_report_html
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import PendingApproval, ReportView, TaskView

_RowT = TypeVar("_RowT", bound=Value)
MAX_TABLE_COLUMNS, MAX_CELL_CHARACTERS = 9, 120
"""Columns of a table in a notebook; characters of a cell."""


class ValueRows(Sequence[_RowT], Generic[_RowT]):
    """Values that print as a table and convert to a data frame."""

    def __init__(self, rows: Sequence[_RowT], to_row: Callable[[_RowT], Value] | None = None) -> None:
        """Create rows from values.

        Args:
            rows: The values.
            to_row: Returns what a table or a data frame shows of a value. Default: all fields of the value.
        """
        self._rows, self._to_row = tuple(rows), to_row

    @overload
    def __getitem__(self, at: int) -> _RowT: ...
    @overload
    def __getitem__(self, at: slice) -> "ValueRows[_RowT]": ...
    def __getitem__(self, at: int | slice) -> "_RowT | ValueRows[_RowT]":
        """Return a row, or a slice of them."""
        return ValueRows(self._rows[at], self._to_row) if isinstance(at, slice) else self._rows[at]

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
        return pandas.json_normalize([row.model_dump() for row in self._list_table_rows()])

    def _repr_html_(self) -> str:
        return render_html_table(self._list_table_rows())

    def _list_table_rows(self) -> Sequence[Value]:
        return self._rows if self._to_row is None else tuple(map(self._to_row, self._rows))


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


class TaskFrameRow(Value):
    """A task as a row of a table or a data frame."""

    task_id: str
    phase: TaskPhase
    title: str
    session: str
    submitted_at: datetime | None
    ended_at: datetime | None
    spent_tokens: int
    spent_usd: float
    pending_approvals: int

    @classmethod
    def from_view(cls, view: TaskView) -> Self:
        """Build the row of a task."""
        return cls(
            task_id=view.task_id,
            phase=view.phase,
            title=view.title,
            session=view.session,
            submitted_at=view.submitted_at,
            ended_at=view.ended_at,
            spent_tokens=view.budget.spent.tokens,
            spent_usd=view.budget.spent.usd,
            pending_approvals=len(view.pending_approvals),
        )


class ApprovalFrameRow(Value):
    """A request that waits for an answer, as a row of a table or a data frame."""

    task_id: str
    request_id: str
    agent: str
    requests: str
    """The requested amount, tool call or agreement, in words."""
    answer_by: datetime | None
    title: str

    @classmethod
    def from_pending(cls, one: PendingApproval) -> Self:
        """Build the row of a pending request."""
        return cls(
            task_id=one.task_id,
            request_id=one.approval.request_id,
            agent=one.approval.agent,
            requests=one.approval.format_requested(),
            answer_by=one.approval.answer_by,
            title=one.title,
        )


class Report(ReportView):
    """A report as Markdown, which a notebook shows rendered."""

    @classmethod
    def from_view(cls, report: ReportView) -> Self:
        """Build it from the report that the client returns."""
        return cls(
            task_id=report.task_id,
            phase=report.phase,
            version=report.version,
            versions=report.versions,
            model=report.model,
            markdown=report.markdown,
            sentences=report.sentences,
        )

    def _repr_html_(self) -> str:
        return render_report_html(self.markdown)
