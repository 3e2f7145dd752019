"""The originals behind placeholders, each encrypted."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Nothing was kept before."""
    op.create_table(
        "vault",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("placeholder", sa.String, nullable=False),
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("original", sa.LargeBinary, nullable=False),
        sa.Column("kept_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "placeholder", name="pk_vault"),
    )
