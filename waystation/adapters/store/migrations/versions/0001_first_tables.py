"""The first tables: tasks with their documents, agent runs with everything they commit."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create every table."""
    op.create_table(
        "identity",
        sa.Column("store_id", sa.String, primary_key=True),
        sa.Column("created_at", MOMENT, nullable=False),
    )
    _create_tasks()
    _create_documents()
    _create_runs()
    _create_transcripts()
    _create_charges()
    _create_legs()
    _create_work()


def _ordinal() -> sa.Column[int]:
    return sa.Column("ordinal", sa.Integer, primary_key=True, autoincrement=True)


def _run(*, primary_key: bool = False) -> sa.Column[str]:
    return sa.Column("run_id", sa.String, sa.ForeignKey("runs.run_id"), primary_key=primary_key, nullable=False)


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        _ordinal(),
        sa.Column("task_id", sa.String, nullable=False, unique=True),
        sa.Column("store_id", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False, index=True),
        sa.Column("request_id", sa.String, nullable=False),
        sa.Column("digest", sa.String, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("terms", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("submitted_at", MOMENT, nullable=False),
        sa.Column("plan", sa.Text),
        sa.Column("progress", sa.Text),
        sa.UniqueConstraint("tenant", "session", "request_id"),
    )
    op.create_table(
        "audit",
        _ordinal(),
        sa.Column("task_id", sa.String, sa.ForeignKey("tasks.task_id"), nullable=False),
        sa.Column("entry_id", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("task_id", "entry_id"),
    )


def _create_documents() -> None:
    op.create_table(
        "texts",
        sa.Column("blob", sa.String, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "documents",
        sa.Column("task_id", sa.String, sa.ForeignKey("tasks.task_id"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String, nullable=False),
        sa.Column("blob", sa.String, sa.ForeignKey("texts.blob"), nullable=False),
        sa.Column("lines", sa.Integer, nullable=False),
        sa.Column("characters", sa.Integer, nullable=False),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("task_id", sa.String, nullable=False, index=True),
        sa.Column("step_id", sa.String, nullable=False),
        sa.Column("role", sa.String, nullable=False),
        sa.Column("fence", sa.Integer, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
    )


def _create_transcripts() -> None:
    for table, identifier in (("messages", "message_id"), ("compactions", "record_id")):
        op.create_table(
            table,
            _run(primary_key=True),
            sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column(identifier, sa.String, nullable=False),
            sa.Column("body", sa.Text, nullable=False),
            sa.Column("committed_at", MOMENT, nullable=False),
            sa.UniqueConstraint("run_id", identifier),
        )
    op.create_table(
        "passages",
        _ordinal(),
        sa.Column("passage_id", sa.String, nullable=False, unique=True),
        _run(),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("stored_at", MOMENT),
    )
    op.create_index(None, "passages", ["stored_at", "ordinal"])


def _create_charges() -> None:
    op.create_table(
        "charges",
        _ordinal(),
        _run(),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        *(sa.Column(kind, sa.BigInteger, nullable=False) for kind in ("input", "cache_write", "cache_read", "output")),
        sa.Column("cost_micro_usd", sa.BigInteger),
        sa.Column("at", MOMENT, nullable=False),
        sa.UniqueConstraint("run_id", "key"),
    )
    op.create_table(
        "intents",
        _ordinal(),
        _run(),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("model", sa.String, nullable=False),
        sa.Column("worst_case", sa.BigInteger, nullable=False),
        sa.Column("at", MOMENT, nullable=False),
    )
    op.create_index(None, "intents", ["run_id", "key"])


def _create_legs() -> None:
    op.create_table(
        "tool_intents",
        _run(primary_key=True),
        sa.Column("tool_use_id", sa.String, primary_key=True),
        sa.Column("at", MOMENT, nullable=False),
    )
    op.create_table(
        "outcomes",
        _run(primary_key=True),
        sa.Column("leg", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("committed_at", MOMENT, nullable=False),
    )


def _create_work() -> None:
    op.create_table(
        "notes",
        _ordinal(),
        _run(),
        sa.Column("note_id", sa.String, nullable=False),
        sa.Column("task_id", sa.String, nullable=False, index=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.UniqueConstraint("run_id", "note_id"),
    )
    op.create_table(
        "deliverables",
        _run(primary_key=True),
        sa.Column("task_id", sa.String, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
