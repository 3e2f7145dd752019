"""Tokens that no provider reported, which are charged as bounds; and the name under which a model answered."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """What was charged before had been reported, and who answered it was not looked at."""
    op.add_column("charges", sa.Column("estimated", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("charges", sa.Column("answered_by", sa.String, nullable=False, server_default=""))
