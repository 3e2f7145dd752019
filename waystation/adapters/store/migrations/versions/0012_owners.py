"""Whose texts and agent runs are, so that reads say who asks; and since when everything is sealed to its row."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Of a task's documents it is known whose they are. Other texts are named in what may be encrypted: whoever opens
    the store with its key finds them.
    """
    _identity()
    # Texts as they are shown begin with the name of their row from here on. They are made anew from their originals.
    op.execute("DELETE FROM texts WHERE blob LIKE '%/%'")
    op.add_column("runs", sa.Column("tenant", sa.String, nullable=False, server_default=""))
    op.add_column("runs", sa.Column("session", sa.String, nullable=False, server_default=""))
    for column in ("tenant", "session"):
        op.execute(
            f"UPDATE runs SET {column} = (SELECT tasks.{column} FROM tasks WHERE tasks.task_id = runs.task_id) "
            "WHERE EXISTS (SELECT 1 FROM tasks WHERE tasks.task_id = runs.task_id)"
        )
    op.create_table(
        "text_owners",
        sa.Column("blob", sa.String, sa.ForeignKey("texts.blob", name="fk_text_owners_blob"), primary_key=True),
        sa.Column("task_id", sa.String, primary_key=True),
        sa.Column("tenant", sa.String, nullable=False, server_default=""),
        sa.Column("session", sa.String, nullable=False, server_default=""),
    )
    op.create_index("ix_text_owners_task_id", "text_owners", ["task_id"])
    op.execute(
        "INSERT INTO text_owners (blob, task_id, tenant, session) SELECT DISTINCT documents.blob, tasks.task_id, "
        "tasks.tenant, tasks.session FROM documents JOIN tasks ON tasks.task_id = documents.task_id"
    )


def _identity() -> None:
    for column in ("owned_since", "sealed_since"):
        op.add_column("identity", sa.Column(column, sa.DateTime(timezone=True)))
    # A store in which nothing was kept yet has nothing whose owners are to be found.
    op.execute(
        "UPDATE identity SET owned_since = created_at WHERE NOT EXISTS (SELECT 1 FROM tasks) "
        "AND NOT EXISTS (SELECT 1 FROM texts)"
    )
