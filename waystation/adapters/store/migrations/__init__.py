"""Alembic's migrations, applied by `waystation.adapters.store.upgrading` when a database is opened."""
