"""Kinds of places in which a person may be found."""

from enum import StrEnum


class ErasureLocation(StrEnum):
    """A kind of place in which a person may be found."""

    REQUEST = "requests"
    DOCUMENT_NAME = "names of documents"
    DOCUMENT = "documents"
    TEXT = "reports and long results"
    TITLE = "titles"
    PLAN = "plans"
    PROGRESS = "progress"
    AUDIT = "audit trail"
    REPORT_LINK = "links to reports"
    TRANSCRIPT = "transcripts"
    SUMMARY = "summaries and other compactions"
    OUTCOME = "outcomes of legs"
    NOTE = "notes"
    FINDING = "findings and sections"
    REMEMBERED = "passages in memory"
    OUTBOX = "passages not in memory (waiting or withdrawn)"
    VAULT = "vault"
    REPORT_FILE = "files of reports"
    HISTORY = "workflow histories"
    IDENTIFIER = "names of sessions and requests"
    """They are kept: things are found by them."""
