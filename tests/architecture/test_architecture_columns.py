"""What each column of the store is. Who can write to the database has no key: what is neither sealed nor held against
something sealed must say here why that does no more harm than docs/explanation/security.md tells.
"""

from sqlalchemy import Column, Integer, UniqueConstraint

from waystation.store.encryption import EncryptedBytes, EncryptedText
from waystation.store.schema import UtcDateTime, metadata

SEALED, KEY, MOMENT, COUNT = "sealed", "key or id", "moment", "count"
KINDS = {SEALED, KEY, MOMENT, COUNT}

PROVEN = "asked for in SQL; the row's proof is bound to it, and read with everything that the row permits to read"
SPENT = "summed in SQL; what was spent can be made less by taking rows away, too, so proofs would prove nothing"
ENDS = "retention and forgetting ask for it in SQL; earlier or later, it takes rows away or keeps them"
WAITS = "the outbox asks for it in SQL; it makes memory take a passage again, or take it out, and never a changed one"
INDEX = "told from the body, which is sealed, for queries; another one makes a step be repeated or refused"

TOLD = "shown to people and listeners, and nothing is decided by it: what it refers to is read where it is sealed"

COLUMNS = {
    "identity": {
        "store_id": KEY,
        "created_at": MOMENT,
        "key_check": "16 digits of a hash of the key: another one makes commands refuse the key that is here",
        "sealed_since": "needed before there is a key; machines remember it by the database's place and by the id",
        "row_key_check": "machines remember it by the database's place and by the id; an unknown one stops commands",
    },
    "tasks": {
        "ordinal": KEY,
        "task_id": KEY,
        "store_id": "another one makes the task refused: it is of another store",
        "tenant": "asked for in SQL; the terms are bound to it, and read with everything of the task",
        "session": "asked for in SQL; the terms are bound to it, and read with everything of the task",
        "request_id": KEY,
        "digest": "of question and documents, held against what is handed in again: another one refuses the request",
        "request": SEALED,
        "terms": SEALED,
        "title": SEALED,
        "submitted_at": MOMENT,
        "ended_at": ENDS,
        "forgotten_at": ENDS,
        "plan": SEALED,
        "progress": SEALED,
    },
    "sessions": {
        "tenant": KEY,
        "session": KEY,
        "epoch": "another one makes a session's workflow take the stored state once more, or save none",
        "version": "another one makes a session's workflow take the stored state once more, or save none",
        "state": SEALED,
    },
    "plan_revisions": {"task_id": KEY, "number": KEY, "body": SEALED, "made_at": MOMENT},
    "report_links": {"link_id": KEY, "task_id": KEY, "body": SEALED, "made_by": SEALED, "last_used_at": MOMENT},
    "audit": {"ordinal": KEY, "task_id": KEY, "entry_id": KEY, "body": SEALED},
    "texts": {"blob": KEY, "content": SEALED},
    "text_owners": {"blob": KEY, "task_id": KEY, "tenant": PROVEN, "session": PROVEN, "proof": SEALED},
    "slow_texts": {
        "fingerprint": KEY,
        "rules": KEY,
        "tenant": "whose slow texts are forgotten with it: another one makes a slow text be tried again, in a child",
        "times": "how often a text was too slow: it is put aside and named, or tried again in a child",
        "last_at": MOMENT,
    },
    "documents": {
        "task_id": KEY,
        "position": KEY,
        "name": SEALED,
        "blob": "the sealed name is bound to it, and the text is held against it on reading",
        "lines": COUNT,
        "characters": COUNT,
        "source": "the sealed name is bound to it",
        "removed": "another one takes a document away, or puts back what the task has had: as taking rows does",
    },
    "runs": {
        "run_id": KEY,
        "task_id": PROVEN,
        "tenant": PROVEN,
        "session": PROVEN,
        "step_id": PROVEN,
        "role": "nothing is decided by it: the workflow says in which role an agent works",
        "fence": COUNT,
        "version": COUNT,
        "opened_at": MOMENT,
        "proof": SEALED,
    },
    "messages": {"run_id": KEY, "version": KEY, "message_id": KEY, "body": SEALED, "committed_at": MOMENT},
    "compactions": {"run_id": KEY, "version": KEY, "record_id": KEY, "body": SEALED, "committed_at": MOMENT},
    "charges": {
        "ordinal": KEY,
        "run_id": KEY,
        "key": KEY,
        "kind": "which charges are of turns: " + SPENT,
        "model": "for the bill. " + SPENT,
        **dict.fromkeys(
            ("input", "cache_write", "cache_read", "output", "searches", "estimated", "cost_micro_usd"), SPENT
        ),
        "answered_by": "who answered, for the bill. " + SPENT,
        "stop": "why a reply ended, which spans tell and nothing decides by",
        "dropped_thinking": "how many blocks a provider left out, for the bill",
        "cache_miss": "a word of the provider's, for the bill",
        "waited_ms": "how long a call waited for a rate limit, for people to see",
        "at": MOMENT,
    },
    "intents": {
        "ordinal": KEY,
        "run_id": KEY,
        "key": "which charge answers it. " + SPENT,
        "model": "for the bill. " + SPENT,
        "worst_case": SPENT,
        "worst_case_micro_usd": SPENT,
        "at": MOMENT,
    },
    "partial_replies": {"run_id": KEY, "body": SEALED},
    "task_watches": {
        "task_id": KEY,
        "watched_until": "another one makes agents store what they are writing, sealed, or store none of it",
    },
    "rate_limits": {
        "endpoint": KEY,
        "account": "keyed hash of the API key, which only finds the row",
        "model": KEY,
        "state": "numbers: limits, levels, and how many calls of each worker wait",
    },
    "tool_intents": {"run_id": KEY, "tool_use_id": KEY, "at": MOMENT},
    "outcomes": {"run_id": KEY, "leg": KEY, "body": SEALED, "committed_at": MOMENT},
    "passages": {
        "ordinal": KEY,
        "passage_id": KEY,
        "run_id": KEY,
        "task_id": INDEX,
        "body": SEALED,
    },
    "passage_states": {"ordinal": KEY, "passage_id": KEY, "stored_at": WAITS, "gone_at": WAITS, "refused_at": WAITS},
    "notes": {
        "ordinal": KEY,
        "run_id": KEY,
        "note_id": KEY,
        "task_id": "held against `run_id`, to which the body is bound",
        "body": SEALED,
    },
    "deliverables": {"run_id": KEY, "task_id": "held against `run_id`, to which the body is bound", "body": SEALED},
    "events": {
        "tenant": "asked for in SQL; the terms of the event's task are read, too, and are bound to their tenant",
        "number": KEY,
        "task_id": "held against its task's terms, which are read with it",
        **dict.fromkeys(("agent", "kind", "reference", "detail", "tokens", "context", "micro_usd"), TOLD),
        "at": MOMENT,
    },
    "event_heads": {"tenant": KEY, "number": COUNT},
    "trace_places": {
        "tenant": KEY,
        "since": COUNT,
        "sent": COUNT,
        "holder": "which process sends spans: another one makes spans be late, or go out twice under the same ids",
        "held_until": MOMENT,
    },
    "vault": {
        "tenant": KEY,
        "placeholder": KEY,
        "fingerprint": "keyed; another one makes a value get another placeholder from then on",
        "original": "sealed by the vault itself, for tenant and placeholder, in every store",
        "kept_at": MOMENT,
    },
    "vault_sessions": {
        "tenant": KEY,
        "placeholder": KEY,
        "session": KEY,
        "proof": "sealed by the vault itself, for all that the row says, in every store",
    },
}


def columns() -> dict[tuple[str, str], Column[object]]:
    return {(table.name, column.name): column for table in metadata.sorted_tables for column in table.columns}


def is_guarded_by_schema(column: Column[object]) -> bool:
    """Whether it is sealed, or a sealed column of its row is bound to it: another value is noticed on reading."""
    sealed = [one.type for one in column.table.columns if isinstance(one.type, EncryptedText)]
    return _is(column, SEALED) or any(column.name in kind.key for kind in sealed) or column.name == "ordinal"


def test_every_column_says_what_guards_it() -> None:
    said = {(table, column) for table, of_table in COLUMNS.items() for column in of_table}
    silent = {place for place, column in columns().items() if not is_guarded_by_schema(column)} - said
    assert silent == set(), "a new column is sealed, bound to one that is, or says above why it need not be"
    assert said <= columns().keys()


def test_what_columns_say_of_themselves_is_true() -> None:
    untrue = [
        f"{table}.{name} is no {kind}"
        for table, of_table in COLUMNS.items()
        for name, kind in of_table.items()
        if kind in KINDS and not _is(columns()[table, name], kind)
    ]
    assert not untrue
    said = {(table, name): kind for table, of_table in COLUMNS.items() for name, kind in of_table.items()}
    assert [
        place for place, column in columns().items() if _is(column, SEALED) and said.get(place, SEALED) != SEALED
    ] == []


def test_what_is_neither_sealed_nor_an_id_has_a_reason_in_words() -> None:
    reasons = [reason for of_table in COLUMNS.values() for reason in of_table.values() if reason not in KINDS]
    assert all(len(reason.split()) > 3 for reason in reasons)


def _is(column: Column[object], kind: str) -> bool:
    match kind:
        case "sealed":
            return isinstance(column.type, EncryptedText | EncryptedBytes)
        case "key or id":
            return column.primary_key or bool(column.foreign_keys) or _is_unique(column)
        case "moment":
            return isinstance(column.type, UtcDateTime)
        case _:
            return isinstance(column.type, Integer)


def _is_unique(column: Column[object]) -> bool:
    constraints = [one for one in column.table.constraints if isinstance(one, UniqueConstraint)]
    return any(column.name in one.columns for one in constraints)
