"""Alembic's migrations, applied by `waystation.store.schema_version` when a database is opened."""
