"""Transcripts, charges, tasks, texts and the outbox in one SQL database."""

from waystation.adapters.store.sql_store import SqlStore

__all__ = ["SqlStore"]
