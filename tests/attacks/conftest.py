"""Stores of both kinds for attacks on what stores keep."""

from tests.adapters.conftest import (  # noqa: F401 - pytest finds fixtures by their names here
    emptied_url,
    migrated,
    shared_database,
    store,
    store_url,
)
