"""In which sessions the originals behind placeholders were met."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Of what is in the vault nobody noted where it was met: it counts for a session when that meets it again."""
    op.create_table(
        "vault_sessions",
        sa.Column("tenant", sa.String, nullable=False),
        sa.Column("placeholder", sa.String, nullable=False),
        sa.Column("session", sa.String, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "placeholder", "session", name="pk_vault_sessions"),
    )
    op.create_index("ix_vault_sessions_session", "vault_sessions", ["session"])
