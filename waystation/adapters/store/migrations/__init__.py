"""Alembic's migrations, applied by `waystation.adapters.store.schema_version` when a database is opened."""
