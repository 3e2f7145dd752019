"""What sessions have spent, hold and may spend."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Sessions without a row have no limit and have spent nothing."""
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session", name="pk_sessions"),
    )
