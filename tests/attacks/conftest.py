"""Stores of both kinds for attacks on what stores keep."""

from tests.adapters.conftest import emptied_database_url, migrated_database, shared_database_url, store, store_url

__all__ = ["emptied_database_url", "migrated_database", "shared_database_url", "store", "store_url"]
