"""Which texts took too long to redact, so that a restart does not try them again."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Nothing was kept of them before."""
    op.create_table(
        "slow_texts",
        sa.Column("fingerprint", sa.String, nullable=False),
        sa.Column("rules", sa.String, nullable=False),
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("times", sa.Integer, nullable=False),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "rules", name="pk_slow_texts"),
    )
    op.create_index("ix_slow_texts_tenant", "slow_texts", ["tenant"])
