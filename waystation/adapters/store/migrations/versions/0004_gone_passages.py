"""Which passages count no more, because their conversation was taken back."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Nothing was taken back before."""
    op.add_column("passages", sa.Column("gone_at", sa.DateTime(timezone=True)))
