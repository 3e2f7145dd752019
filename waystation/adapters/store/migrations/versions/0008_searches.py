"""Searches of the web, which are charged beside tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """No call before could search."""
    op.add_column("charges", sa.Column("searches", sa.BigInteger, nullable=False, server_default="0"))
