"""When tasks ended, and when they were forgotten."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Of those that ended before nobody wrote it down: they count from now on, lest one be forgotten too early."""
    op.add_column("tasks", sa.Column("ended_at", sa.DateTime(timezone=True)))
    op.add_column("tasks", sa.Column("forgotten_at", sa.DateTime(timezone=True)))
    op.execute("UPDATE tasks SET ended_at = CURRENT_TIMESTAMP WHERE progress IS NOT NULL")
