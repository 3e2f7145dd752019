"""Documents that change while their task works: from which file each was read, and which are there no more."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """No document was removed before, and of none is known from which file it was read."""
    op.add_column("documents", sa.Column("source", sa.String, nullable=False, server_default=""))
    op.add_column("documents", sa.Column("removed", sa.Boolean, nullable=False, server_default=sa.false()))
