"""Plans that were made anew after the research; the first plan of a task stays where it is."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """No plan was revised before."""
    op.create_table(
        "plan_revisions",
        sa.Column("task_id", sa.String, sa.ForeignKey("tasks.task_id", name="fk_plan_revisions_task_id")),
        sa.Column("number", sa.Integer, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("task_id", "number", name="pk_plan_revisions"),
    )
