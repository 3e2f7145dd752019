"""Adding a compaction record to a transcript."""

from waystation.domain.transcript import CompactionRecord, Transcript


def with_record(transcript: Transcript, record: CompactionRecord) -> Transcript:
    """The transcript with the record over it: one commit more, no message less."""
    return transcript.model_copy(
        update={"records": (*transcript.records, record), "version": transcript.version + 1},
    )
