"""Adding a record to a transcript."""

from waystation.domain.transcript import Record, Transcript


def with_record(transcript: Transcript, record: Record) -> Transcript:
    """The transcript with the record over it: one commit more, no message less."""
    placed = record.model_copy(update={"after": len(transcript.messages)})
    return transcript.model_copy(update={"records": (*transcript.records, placed), "version": transcript.version + 1})
