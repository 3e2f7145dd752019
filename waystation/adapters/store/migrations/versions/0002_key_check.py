"""By what workers that share a store see whether they share its key."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """No key has been claimed yet."""
    op.add_column("identity", sa.Column("key_check", sa.String))
