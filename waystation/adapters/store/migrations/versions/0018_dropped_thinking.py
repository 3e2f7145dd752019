"""Thinking that the provider left out of a request, and why it could not read a prefix from its cache."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Neither was kept before."""
    op.add_column("charges", sa.Column("dropped_thinking", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("charges", sa.Column("cache_miss", sa.String, nullable=False, server_default=""))
