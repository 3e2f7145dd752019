"""Terms of tasks are sealed; who has met an original, and whose texts and runs are, is proven by the key; slow texts
are remembered.
"""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_FLAG = '"procedures_among_documents"'
_TASKS = sa.table("tasks", sa.column("terms", sa.Text))


def upgrade() -> None:
    """Terms that are there are plain, owners have no proof, and names of documents and passages are bound to less than
    from now on: the store takes such rows until `waystation store reseal` has sealed them. What was noted of sessions
    without a proof counts when they meet it again.
    """
    op.execute("UPDATE identity SET sealed_since = NULL")
    op.add_column("vault_sessions", sa.Column("proof", sa.LargeBinary))
    # What was true when terms did not say it.
    old = sa.and_(_TASKS.c.terms.like('{"%'), ~_TASKS.c.terms.contains(_FLAG))
    said = sa.literal(f"{{{_FLAG}:true,", sa.Text) + sa.func.substr(_TASKS.c.terms, 2)
    op.execute(_TASKS.update().where(old).values(terms=said))
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
    for table in ("text_owners", "runs"):
        op.add_column(table, sa.Column("proof", sa.String, nullable=False, server_default=""))
