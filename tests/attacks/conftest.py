"""Stores of both kinds for attacks on what stores keep."""

from tests.adapters.conftest import emptied_url, migrated, shared_database, store, store_url

__all__ = ["emptied_url", "migrated", "shared_database", "store", "store_url"]
