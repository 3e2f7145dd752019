"""Alembic's migrations, applied by `waystation.adapters.store.upgrades` when a database is opened."""
