"""How far events have gone out as spans; and why replies ended."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Nothing was sent before, and why a reply ended was not kept."""
    op.create_table(
        "trace_places",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("sent", sa.BigInteger, nullable=False),
        sa.Column("holder", sa.String, nullable=False, server_default=""),
        sa.Column("held_until", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("tenant", name="pk_trace_places"),
    )
    op.add_column("charges", sa.Column("stop", sa.String, nullable=False, server_default=""))
