"""Entry point of Alembic: runs the migrations on the given connection, in the given transaction."""

from alembic import context
from sqlalchemy import Connection

from waystation.store.schema import metadata

connection: Connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata, render_as_batch=True)
context.run_migrations()
