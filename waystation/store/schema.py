"""The tables of the store. A change here needs a migration, and `REVISION` names the newest one."""

from datetime import UTC, datetime

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)

from waystation.store.encryption import EncryptedBytes, EncryptedString, EncryptedText, RowProofType

FIRST_REVISION = "0101"
"""Lower numbers were used before the first release; a database with one is rejected."""
REVISION = "0101"
"""Revisions are four-digit numbers, so that an older program can tell that a database is newer."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment with its time zone. SQLite stores none, so it is written and read as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Convert to UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Add the time zone UTC."""
        return None if value is None else value.replace(tzinfo=UTC)


class NulFreeString(TypeDecorator[str]):
    """Text without NUL characters, which PostgreSQL's text type rejects. They become replacement characters."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Replace each NUL by U+FFFD."""
        return None if value is None else value.replace("\x00", "\ufffd")


def _ordinal() -> Column[int]:
    """Column that grows with every row of its table: the order in which rows were written."""
    return Column("ordinal", Integer, primary_key=True, autoincrement=True)


def _run(*, primary_key: bool = False) -> Column[str]:
    return Column("run_id", String, ForeignKey("runs.run_id"), primary_key=primary_key, nullable=False)


def _owner() -> tuple[Column[str], Column[str]]:
    """Owner columns next to the task's id: a query can name whose rows it wants even if the task has no row."""
    return (
        Column("tenant", String, nullable=False, server_default=""),
        Column("session", String, nullable=False, server_default=""),
    )


def _proof(table: str, *key: str) -> Column[str]:
    """Proof that is checked by every read that the row permits: a row written without the key permits nothing.

    Written by `add_row_proof`: writing a row without it is a TypeError if texts are encrypted.
    """
    return Column("proof", RowProofType(f"{table}.proof", *key), nullable=False, default="", server_default="")


identity = Table(
    "identity",
    metadata,
    Column("store_id", String, primary_key=True),
    Column("created_at", UtcDateTime, nullable=False),
    # By this, workers check whether they share the key of placeholders; empty until the first of them claims it.
    Column("key_check", String),
    # When everything became encrypted and bound to its row; since then anything else is rejected.
    Column("sealed_since", UtcDateTime),
    # The key under which everything was last rewritten, by its check: what an older one wrote is rejected since.
    Column("row_key_check", String),
)

tasks = Table(
    "tasks",
    metadata,
    _ordinal(),
    Column("task_id", String, nullable=False, unique=True),
    Column("store_id", String, nullable=False),
    Column("tenant", String, nullable=False),
    Column("session", String, nullable=False, index=True),
    Column("request_id", NulFreeString, nullable=False),
    Column("digest", String, nullable=False),
    Column("request", EncryptedText("tasks.request", "task_id"), nullable=False),
    # Bound to its owner too: a task that was moved to another tenant or session cannot be decrypted.
    Column("terms", EncryptedText("tasks.terms", "task_id", "tenant", "session"), nullable=False),
    Column("title", EncryptedText("tasks.title", "task_id", empty=True), nullable=False),
    Column("submitted_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # When every word of the task was forgotten.
    Column("forgotten_at", UtcDateTime),
    Column("plan", EncryptedText("tasks.plan", "task_id")),
    Column("progress", EncryptedText("tasks.progress", "task_id")),
    UniqueConstraint("tenant", "session", "request_id"),
)

# What sessions have spent, hold and may spend. Their workflows carry the same, and may be terminated at any moment.
sessions = Table(
    "sessions",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("session", String, primary_key=True),
    # Each workflow execution that starts without a predecessor takes over the session; older ones write nothing more.
    Column("epoch", BigInteger, nullable=False),
    # Version of the state within an epoch: a late attempt does not replace a newer state.
    Column("version", BigInteger, nullable=False),
    Column("state", EncryptedText("sessions.state", "tenant", "session"), nullable=False),
)

# The plans that replaced the first, which is in its task's row.
plan_revisions = Table(
    "plan_revisions",
    metadata,
    Column("task_id", String, ForeignKey("tasks.task_id"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("body", EncryptedText("plan_revisions.body", "task_id", "number"), nullable=False),
    Column("made_at", UtcDateTime, nullable=False),
)

# Read-only links to a report, for people without a key. Nothing shows their addresses again: the body has a digest.
report_links = Table(
    "report_links",
    metadata,
    Column("link_id", String, primary_key=True),
    Column("task_id", String, ForeignKey("tasks.task_id"), nullable=False, index=True),
    Column("body", EncryptedText("report_links.body", "link_id", "task_id"), nullable=False),
    # A column of its own, so that the erasure of a person never writes the body, which says whether a link is revoked.
    Column("made_by", EncryptedText("report_links.made_by", "link_id", "task_id", empty=True), nullable=False),
    Column("last_used_at", UtcDateTime),
)

audit = Table(
    "audit",
    metadata,
    _ordinal(),
    Column("task_id", String, ForeignKey("tasks.task_id"), nullable=False),
    Column("entry_id", String, nullable=False),
    Column("body", EncryptedText("audit.body", "task_id", "entry_id"), nullable=False),
    UniqueConstraint("task_id", "entry_id"),
)

texts = Table(
    "texts",
    metadata,
    Column("blob", String, primary_key=True),
    # UTF-8 bytes, because PostgreSQL's text type rejects NUL characters, which documents and tool results may contain.
    Column("content", EncryptedBytes("texts.content"), nullable=False),
)

# Owners of texts: every task that submitted it, or whose agents made it. A hash alone gives no access.
text_owners = Table(
    "text_owners",
    metadata,
    Column("blob", String, ForeignKey("texts.blob"), primary_key=True),
    Column("task_id", String, primary_key=True, index=True),
    *_owner(),
    _proof("text_owners", "blob", "task_id", "tenant", "session"),
)

# Texts whose redaction took too long, by keyed fingerprints that cannot be reversed, so that they are not retried for
# ever.
slow_texts = Table(
    "slow_texts",
    metadata,
    Column("fingerprint", String, primary_key=True),
    # Policy, version of the rules, and seconds: under other ones a text is tried again.
    Column("rules", String, primary_key=True),
    Column("tenant", String, nullable=False, index=True),
    Column("times", Integer, nullable=False),
    Column("last_at", UtcDateTime, nullable=False),
)

documents = Table(
    "documents",
    metadata,
    Column("task_id", String, ForeignKey("tasks.task_id"), primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False),
    # Bound to its text too: another text of the store cannot be substituted.
    Column("name", EncryptedString("documents.name", "task_id", "position", "blob", "source", "date"), nullable=False),
    Column("blob", String, ForeignKey("texts.blob"), nullable=False),
    Column("lines", Integer, nullable=False),
    Column("characters", Integer, nullable=False),
    # Content hash of the file, so that an unchanged one is not read again.
    Column("source", String, nullable=False, server_default=""),
    Column("removed", Boolean, nullable=False, server_default=false()),
    # The day that the document states for itself.
    Column("date", String, nullable=False, server_default=""),
    Column("file_name", EncryptedString("documents.file_name", "task_id", "position", empty=True), nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("task_id", String, nullable=False, index=True),
    *_owner(),
    Column("step_id", String, nullable=False),
    Column("role", String, nullable=False),
    Column("fence", Integer, nullable=False),
    Column("version", Integer, nullable=False),
    Column("opened_at", UtcDateTime, nullable=False),
    _proof("runs", "run_id", "task_id", "tenant", "session", "step_id"),
)

# Messages and compaction records carry the version that their commit made: together, the order of all commits.
messages = Table(
    "messages",
    metadata,
    _run(primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("message_id", String, nullable=False),
    Column("body", EncryptedText("messages.body", "run_id", "version"), nullable=False),
    Column("committed_at", UtcDateTime, nullable=False),
    UniqueConstraint("run_id", "message_id"),
)

compactions = Table(
    "compactions",
    metadata,
    _run(primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("record_id", String, nullable=False),
    Column("body", EncryptedText("compactions.body", "run_id", "version"), nullable=False),
    Column("committed_at", UtcDateTime, nullable=False),
    UniqueConstraint("run_id", "record_id"),
)

charges = Table(
    "charges",
    metadata,
    _ordinal(),
    _run(),
    Column("key", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("model", String, nullable=False),
    Column("input", BigInteger, nullable=False),
    Column("cache_write", BigInteger, nullable=False),
    Column("cache_read", BigInteger, nullable=False),
    Column("output", BigInteger, nullable=False),
    Column("searches", BigInteger, nullable=False, server_default="0"),
    Column("estimated", BigInteger, nullable=False, server_default="0"),
    Column("answered_by", String, nullable=False, server_default=""),
    Column("stop", String, nullable=False, server_default=""),
    Column("dropped_thinking", BigInteger, nullable=False, server_default="0"),
    Column("cache_miss", String, nullable=False, server_default=""),
    Column("waited_ms", BigInteger, nullable=False, server_default="0"),
    Column("cost_micro_usd", BigInteger),
    Column("at", UtcDateTime, nullable=False),
    UniqueConstraint("run_id", "key"),
)

intents = Table(
    "intents",
    metadata,
    _ordinal(),
    _run(),
    Column("key", String, nullable=False),
    Column("model", String, nullable=False),
    Column("worst_case", BigInteger, nullable=False),
    Column("worst_case_micro_usd", BigInteger, nullable=False, server_default="0"),
    Column("at", UtcDateTime, nullable=False),
    Index(None, "run_id", "key"),
)

# Rate limits of providers, which all workers share. It has no tenant: an account's quota is everyone's.
rate_limits = Table(
    "rate_limits",
    metadata,
    Column("endpoint", String, primary_key=True),
    # Keyed hash of what the provider knows the account by.
    Column("account", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("state", Text, nullable=False),
)

tool_intents = Table(
    "tool_intents",
    metadata,
    _run(primary_key=True),
    Column("tool_use_id", String, primary_key=True),
    Column("at", UtcDateTime, nullable=False),
)

outcomes = Table(
    "outcomes",
    metadata,
    _run(primary_key=True),
    Column("leg", Integer, primary_key=True, autoincrement=False),
    Column("body", EncryptedText("outcomes.body", "run_id", "leg"), nullable=False),
    Column("committed_at", UtcDateTime, nullable=False),
)

passages = Table(
    "passages",
    metadata,
    _ordinal(),
    Column("passage_id", String, nullable=False, unique=True),
    _run(),
    Column("task_id", String, nullable=False),
    # Rows stay: a lost memory can be rebuilt from them.
    Column("body", EncryptedText("passages.body", "passage_id", "run_id"), nullable=False),
)

# Where each passage is on its way. A table of its own: PostgreSQL writes a row as a whole when any of it changes.
passage_states = Table(
    "passage_states",
    metadata,
    _ordinal(),
    Column("passage_id", String, ForeignKey("passages.passage_id"), nullable=False, unique=True),
    # Empty while the passage waits.
    Column("stored_at", UtcDateTime),
    # Set when the conversation was rewound; such a passage is in memory as long as `stored_at` is set.
    Column("gone_at", UtcDateTime),
    # Set when memory does not accept the passage, however often it is sent.
    Column("refused_at", UtcDateTime),
    Index(None, "stored_at", "ordinal"),
)

notes = Table(
    "notes",
    metadata,
    _ordinal(),
    _run(),
    Column("note_id", String, nullable=False),
    Column("task_id", String, nullable=False, index=True),
    Column("body", EncryptedText("notes.body", "run_id", "note_id"), nullable=False),
    UniqueConstraint("run_id", "note_id"),
)

deliverables = Table(
    "deliverables",
    metadata,
    _run(primary_key=True),
    Column("task_id", String, nullable=False),
    Column("body", EncryptedText("deliverables.body", "run_id"), nullable=False),
)

# What an agent's model has said of a reply that still arrives, while someone watches the task. Deleted with the commit
# of the reply.
partial_replies = Table(
    "partial_replies",
    metadata,
    _run(primary_key=True),
    Column("body", EncryptedText("partial_replies.body", "run_id"), nullable=False),
)

# Until when someone watches a task, so that its agents store partial replies.
task_watches = Table(
    "task_watches",
    metadata,
    Column("task_id", String, ForeignKey("tasks.task_id"), primary_key=True),
    Column("watched_until", UtcDateTime, nullable=False),
)

# Events of tasks in the order of commits. Except for the order, they say nothing that another table does not.
task_events = Table(
    "events",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("task_id", String, nullable=False),
    Column("agent", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("reference", String, nullable=False),
    Column("detail", String, nullable=False),
    Column("tokens", BigInteger, nullable=False),
    Column("context", BigInteger, nullable=False),
    Column("micro_usd", BigInteger, nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Index(None, "task_id", "number"),
)

# The newest number of each tenant: transactions that emit events wait for its row, one after the other.
event_heads = Table(
    "event_heads",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("number", BigInteger, nullable=False),
)

# How far the events of each tenant were sent as spans. The row without a tenant says who sends, and until when.
trace_places = Table(
    "trace_places",
    metadata,
    Column("tenant", String, primary_key=True),
    # The newest event when spans were first sent. Tasks that had started by then are sent whole with their next event.
    Column("since", BigInteger, nullable=False),
    Column("sent", BigInteger, nullable=False),
    Column("holder", String, nullable=False, server_default=""),
    Column("held_until", UtcDateTime),
)

# Originals behind placeholders. The tenant is the same hash as everywhere; the original is encrypted.
vault = Table(
    "vault",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("placeholder", String, primary_key=True),
    # Distinguishes two originals of one placeholder, whatever their spelling.
    Column("fingerprint", String, nullable=False),
    Column("original", LargeBinary, nullable=False),
    Column("kept_at", UtcDateTime, nullable=False),
)

# The sessions in which each original was encountered: tools can find it in these alone.
vault_sessions = Table(
    "vault_sessions",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("placeholder", String, primary_key=True),
    Column("session", String, primary_key=True, index=True),
    # By the key of placeholders: a row that someone else has written does not count.
    Column("proof", LargeBinary),
)
