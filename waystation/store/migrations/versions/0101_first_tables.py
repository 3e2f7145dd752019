"""Every table of `schema.py` at this revision."""

import sqlalchemy as sa
from alembic import op

revision = "0101"
down_revision = None

MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "event_heads",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", name="pk_event_heads"),
    )
    op.create_table(
        "events",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("agent", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("reference", sa.String(), nullable=False),
        sa.Column("detail", sa.String(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("context", sa.BigInteger(), nullable=False),
        sa.Column("micro_usd", sa.BigInteger(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "number", name="pk_events"),
    )
    op.create_index("ix_events_task_id_number", "events", ["task_id", "number"], unique=False)
    op.create_table(
        "identity",
        sa.Column("store_id", sa.String(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("key_check", sa.String()),
        sa.Column("sealed_since", MOMENT),
        sa.Column("row_key_check", sa.String()),
        sa.PrimaryKeyConstraint("store_id", name="pk_identity"),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), server_default="", nullable=False),
        sa.Column("session", sa.String(), server_default="", nullable=False),
        sa.Column("step_id", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("fence", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("proof", sa.String(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_task_id", "runs", ["task_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("tenant", "session", name="pk_sessions"),
    )
    op.create_table(
        "rate_limits",
        sa.Column("endpoint", sa.String(), nullable=False),
        sa.Column("account", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("endpoint", "account", "model", name="pk_rate_limits"),
    )
    op.create_table(
        "slow_texts",
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("rules", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        sa.Column("last_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("fingerprint", "rules", name="pk_slow_texts"),
    )
    op.create_index("ix_slow_texts_tenant", "slow_texts", ["tenant"], unique=False)
    op.create_table(
        "tasks",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("store_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("request_id", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("submitted_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT),
        sa.Column("forgotten_at", MOMENT),
        sa.Column("plan", sa.Text()),
        sa.Column("progress", sa.Text()),
        sa.PrimaryKeyConstraint("ordinal", name="pk_tasks"),
        sa.UniqueConstraint("task_id", name="uq_tasks_task_id"),
        sa.UniqueConstraint("tenant", "session", "request_id", name="uq_tasks_tenant_session_request_id"),
    )
    op.create_index("ix_tasks_session", "tasks", ["session"], unique=False)
    op.create_table(
        "texts",
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("blob", name="pk_texts"),
    )
    op.create_table(
        "trace_places",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("since", sa.BigInteger(), nullable=False),
        sa.Column("sent", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), server_default="", nullable=False),
        sa.Column("held_until", MOMENT),
        sa.PrimaryKeyConstraint("tenant", name="pk_trace_places"),
    )
    op.create_table(
        "vault",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("placeholder", sa.String(), nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
        sa.Column("original", sa.LargeBinary(), nullable=False),
        sa.Column("kept_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("tenant", "placeholder", name="pk_vault"),
    )
    op.create_table(
        "vault_sessions",
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("placeholder", sa.String(), nullable=False),
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("proof", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("tenant", "placeholder", "session", name="pk_vault_sessions"),
    )
    op.create_index("ix_vault_sessions_session", "vault_sessions", ["session"], unique=False)
    op.create_table(
        "audit",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("entry_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_audit_task_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_audit"),
        sa.UniqueConstraint("task_id", "entry_id", name="uq_audit_task_id_entry_id"),
    )
    op.create_table(
        "charges",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("input", sa.BigInteger(), nullable=False),
        sa.Column("cache_write", sa.BigInteger(), nullable=False),
        sa.Column("cache_read", sa.BigInteger(), nullable=False),
        sa.Column("output", sa.BigInteger(), nullable=False),
        sa.Column("searches", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("estimated", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("answered_by", sa.String(), server_default="", nullable=False),
        sa.Column("stop", sa.String(), server_default="", nullable=False),
        sa.Column("dropped_thinking", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cache_miss", sa.String(), server_default="", nullable=False),
        sa.Column("waited_ms", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("cost_micro_usd", sa.BigInteger()),
        sa.Column("at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_charges_run_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_charges"),
        sa.UniqueConstraint("run_id", "key", name="uq_charges_run_id_key"),
    )
    op.create_table(
        "compactions",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("record_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("committed_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_compactions_run_id"),
        sa.PrimaryKeyConstraint("run_id", "version", name="pk_compactions"),
        sa.UniqueConstraint("run_id", "record_id", name="uq_compactions_run_id_record_id"),
    )
    op.create_table(
        "deliverables",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_deliverables_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_deliverables"),
    )
    op.create_table(
        "documents",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("characters", sa.Integer(), nullable=False),
        sa.Column("source", sa.String(), server_default="", nullable=False),
        sa.Column("removed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("date", sa.String(), server_default="", nullable=False),
        sa.Column("file_name", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["blob"], ["texts.blob"], name="fk_documents_blob"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_documents_task_id"),
        sa.PrimaryKeyConstraint("task_id", "position", name="pk_documents"),
    )
    op.create_table(
        "intents",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("worst_case", sa.BigInteger(), nullable=False),
        sa.Column("worst_case_micro_usd", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_intents_run_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_intents"),
    )
    op.create_index("ix_intents_run_id_key", "intents", ["run_id", "key"], unique=False)
    op.create_table(
        "messages",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("message_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("committed_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_messages_run_id"),
        sa.PrimaryKeyConstraint("run_id", "version", name="pk_messages"),
        sa.UniqueConstraint("run_id", "message_id", name="uq_messages_run_id_message_id"),
    )
    op.create_table(
        "notes",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("note_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_notes_run_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_notes"),
        sa.UniqueConstraint("run_id", "note_id", name="uq_notes_run_id_note_id"),
    )
    op.create_index("ix_notes_task_id", "notes", ["task_id"], unique=False)
    op.create_table(
        "outcomes",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("leg", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("committed_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_outcomes_run_id"),
        sa.PrimaryKeyConstraint("run_id", "leg", name="pk_outcomes"),
    )
    op.create_table(
        "passages",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("passage_id", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_passages_run_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_passages"),
        sa.UniqueConstraint("passage_id", name="uq_passages_passage_id"),
    )
    op.create_table(
        "partial_replies",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_partial_replies_run_id"),
        sa.PrimaryKeyConstraint("run_id", name="pk_partial_replies"),
    )
    op.create_table(
        "task_watches",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("watched_until", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_task_watches_task_id"),
        sa.PrimaryKeyConstraint("task_id", name="pk_task_watches"),
    )
    op.create_table(
        "passage_states",
        sa.Column("ordinal", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("passage_id", sa.String(), nullable=False),
        sa.Column("stored_at", MOMENT),
        sa.Column("gone_at", MOMENT),
        sa.Column("refused_at", MOMENT),
        sa.ForeignKeyConstraint(["passage_id"], ["passages.passage_id"], name="fk_passage_states_passage_id"),
        sa.PrimaryKeyConstraint("ordinal", name="pk_passage_states"),
        sa.UniqueConstraint("passage_id", name="uq_passage_states_passage_id"),
    )
    op.create_index("ix_passage_states_stored_at_ordinal", "passage_states", ["stored_at", "ordinal"], unique=False)
    op.create_table(
        "plan_revisions",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("made_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_plan_revisions_task_id"),
        sa.PrimaryKeyConstraint("task_id", "number", name="pk_plan_revisions"),
    )
    op.create_table(
        "report_links",
        sa.Column("link_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("last_used_at", MOMENT),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_report_links_task_id"),
        sa.PrimaryKeyConstraint("link_id", name="pk_report_links"),
    )
    op.create_index("ix_report_links_task_id", "report_links", ["task_id"], unique=False)
    op.create_table(
        "text_owners",
        sa.Column("blob", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), server_default="", nullable=False),
        sa.Column("session", sa.String(), server_default="", nullable=False),
        sa.Column("proof", sa.String(), server_default="", nullable=False),
        sa.ForeignKeyConstraint(["blob"], ["texts.blob"], name="fk_text_owners_blob"),
        sa.PrimaryKeyConstraint("blob", "task_id", name="pk_text_owners"),
    )
    op.create_index("ix_text_owners_task_id", "text_owners", ["task_id"], unique=False)
    op.create_table(
        "tool_intents",
        sa.Column("run_id", sa.String(), nullable=False),
        sa.Column("tool_use_id", sa.String(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.run_id"], name="fk_tool_intents_run_id"),
        sa.PrimaryKeyConstraint("run_id", "tool_use_id", name="pk_tool_intents"),
    )
