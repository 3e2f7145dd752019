"""Which passages the memory does not take."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """None was put aside before."""
    op.add_column("passages", sa.Column("refused_at", sa.DateTime(timezone=True)))
