"""What agent runs keep in the store: one row for each table.

Rewinds, forks, forgetting, the erasure of a person and the tests follow these rows.
"""

from pydantic import TypeAdapter
from sqlalchemy import select

from waystation.agents.deliverables import Deliverable, Note
from waystation.agents.leg import LegOutcome
from waystation.agents.partial_replies import PartialReply
from waystation.context.transcript import Message, Record
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.value import DEFERRED
from waystation.memory.passages import Passage
from waystation.store.schema import (
    charges,
    compactions,
    deliverables,
    intents,
    messages,
    notes,
    outcomes,
    partial_replies,
    passage_states,
    passages,
    runs,
    tool_intents,
)
from waystation.store.stored_tables import StoredTable, TextColumn

RECORD: TypeAdapter[Record] = TypeAdapter(Record, config=DEFERRED)
OUTCOME: TypeAdapter[LegOutcome] = TypeAdapter(LegOutcome, config=DEFERRED)
DELIVERABLE: TypeAdapter[Deliverable] = TypeAdapter(Deliverable, config=DEFERRED)
_IS_STORED = passages.c.passage_id.in_(
    select(passage_states.c.passage_id).where(passage_states.c.stored_at.is_not(None))
)

RUN_TABLES = (
    StoredTable(table=runs, rewind="kept", fork="copied", forget="kept"),
    # Append-only: a rewind is a record, after which earlier messages and records no longer count.
    StoredTable(
        table=messages,
        rewind="kept",
        fork="copied",
        forget="deleted",
        counted_as="messages",
        texts=(TextColumn(messages.c.body, ErasureLocation.TRANSCRIPT, Message.model_validate_json),),
    ),
    StoredTable(
        table=compactions,
        rewind="kept",
        fork="copied",
        forget="deleted",
        counted_as="messages",
        texts=(TextColumn(compactions.c.body, ErasureLocation.SUMMARY, RECORD.validate_json),),
    ),
    StoredTable(
        table=notes,
        rewind="deleted",
        fork="copied",
        forget="deleted",
        counted_as="work",
        texts=(TextColumn(notes.c.body, ErasureLocation.NOTE, Note.model_validate_json),),
        call_id=notes.c.note_id,
    ),
    # A rewind restores what the calls that still count have submitted.
    StoredTable(
        table=deliverables,
        rewind="separate",
        fork="copied",
        forget="deleted",
        counted_as="work",
        texts=(TextColumn(deliverables.c.body, ErasureLocation.FINDING, DELIVERABLE.validate_json),),
    ),
    StoredTable(
        table=outcomes,
        rewind="kept",
        fork="left",
        forget="deleted",
        counted_as="messages",
        texts=(TextColumn(outcomes.c.body, ErasureLocation.OUTCOME, OUTCOME.validate_json),),
    ),
    # A reply that still arrives. Its commit deletes the row.
    StoredTable(
        table=partial_replies,
        rewind="kept",
        fork="left",
        forget="deleted",
        texts=(TextColumn(partial_replies.c.body, ErasureLocation.TRANSCRIPT, PartialReply.model_validate_json),),
    ),
    # Memory may have them: rows stay, without text, until it has removed them.
    StoredTable(
        table=passages,
        rewind="separate",
        fork="left",
        forget="separate",
        texts=(
            TextColumn(
                passages.c.body,
                ErasureLocation.REMEMBERED,
                Passage.model_validate_json,
                _IS_STORED,
            ),
            TextColumn(passages.c.body, ErasureLocation.OUTBOX, Passage.model_validate_json, ~_IS_STORED),
        ),
    ),
    # What was paid stays paid, and a fork costs nothing.
    StoredTable(table=charges, rewind="kept", fork="left", forget="kept"),
    StoredTable(table=intents, rewind="kept", fork="left", forget="kept"),
    StoredTable(table=tool_intents, rewind="kept", fork="left", forget="deleted"),
)
