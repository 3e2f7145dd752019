"""What an open call may cost in dollars, beside its tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Calls that are open have no limit in dollars over them."""
    op.add_column("intents", sa.Column("worst_case_micro_usd", sa.BigInteger, nullable=False, server_default="0"))
