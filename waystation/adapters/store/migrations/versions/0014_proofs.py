"""Who has met an original is proven by the key; and old terms say what was true when terms did not say it."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_FLAG = '"procedures_among_documents"'
_TASKS = sa.table("tasks", sa.column("terms", sa.Text))


def upgrade() -> None:
    """What was noted without a proof counts for a session when that meets it again. Terms and names of documents are
    bound to more than before: the store takes what is there until `waystation store reseal` has sealed it.
    """
    op.execute("UPDATE identity SET sealed_since = NULL WHERE EXISTS (SELECT 1 FROM tasks)")
    op.add_column("vault_sessions", sa.Column("proof", sa.LargeBinary))
    old = sa.and_(_TASKS.c.terms.like('{"%'), ~_TASKS.c.terms.contains(_FLAG))
    said = sa.literal(f"{{{_FLAG}:true,", sa.Text) + sa.func.substr(_TASKS.c.terms, 2)
    op.execute(_TASKS.update().where(old).values(terms=said))
