"""The key under which a store was last rewritten."""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = "0100"


def upgrade() -> None:
    """Add the column. It is empty until the store is rewritten, and all known keys are accepted as before."""
    op.add_column("identity", sa.Column("row_key_check", sa.String()))
