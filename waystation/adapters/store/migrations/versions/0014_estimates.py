"""Tokens that no provider reported, which are charged as bounds."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """What was charged before had been reported."""
    op.add_column("charges", sa.Column("estimated", sa.BigInteger, nullable=False, server_default="0"))
