"""Transcripts, charges, tasks, texts and the outbox in one SQL database."""

from waystation.adapters.store.seals import AtRest
from waystation.adapters.store.sql_store import Migration, SqlStore, StoreStatus, migrate, store_status

__all__ = ["AtRest", "Migration", "SqlStore", "StoreStatus", "migrate", "store_status"]
