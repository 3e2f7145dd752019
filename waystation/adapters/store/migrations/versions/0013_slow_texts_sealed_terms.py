"""Texts that took too long to redact, so that a restart does not try them again; terms of tasks are sealed."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Of slow texts nothing was kept before. Terms that are there are plain: the store takes such rows until
    `waystation store reseal` has sealed them.
    """
    op.execute("UPDATE identity SET sealed_since = NULL")
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
