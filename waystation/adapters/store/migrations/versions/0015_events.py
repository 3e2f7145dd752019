"""Events: what happens to tasks, numbered in the order of commits. What happened before has none."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_NAMES = ("task_id", "agent", "kind", "reference", "detail")
_COUNTS = ("tokens", "context", "micro_usd")


def upgrade() -> None:
    """The events, and each tenant's newest number."""
    op.create_table(
        "events",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False, autoincrement=False),
        *(sa.Column(name, sa.String, nullable=False) for name in _NAMES),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _COUNTS),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "number", name="pk_events"),
    )
    op.create_index("ix_events_task_id_number", "events", ["task_id", "number"])
    op.create_table(
        "event_heads",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_event_heads"),
    )
