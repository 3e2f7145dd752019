"""The memory of failed summaries: whether the next compaction may ask for one. It is read off the transcript."""

from waystation.domain.compaction.history import current
from waystation.domain.compaction.tokens import estimate_messages
from waystation.domain.transcript import Summarised, SummaryFailed, Transcript

MOST_FAILED = 3
"""Summaries in a row; then none is asked for any more, except by a person."""
GROWTH_PERCENT = 25
"""Of the middle that could not be summarised: by so much the conversation has to grow, or the next one is the same."""


def why_no_summary(transcript: Transcript) -> str | None:
    """Why no summary is asked for now, in words for a person; None where one may be.

    A summary that was made, also one by hand, ends the row. What was rewound takes its failures with it.
    """
    failed = _failed_in_a_row(transcript)
    if len(failed) >= MOST_FAILED:
        return f"No summary was tried: {len(failed)} in a row had failed; `waystation compact` asks for one."
    if failed and (missing := _missing_growth(transcript, failed[-1])) > 0:
        return f"No summary was tried: the last one failed, and since then too little was said, by {missing:,} tokens."
    return None


def _failed_in_a_row(transcript: Transcript) -> list[SummaryFailed]:
    failed: list[SummaryFailed] = []
    for record in current(transcript).records:
        if isinstance(record, Summarised):
            failed = []
        elif isinstance(record, SummaryFailed):
            failed.append(record)
    return failed


def _missing_growth(transcript: Transcript, failed: SummaryFailed) -> int:
    """Tokens (plain estimate) that still have to be said."""
    later = {message.id for message in transcript.messages[failed.after :]}
    grown = estimate_messages([message for message in current(transcript).messages if message.id in later])
    return failed.middle_tokens * GROWTH_PERCENT // 100 - grown
