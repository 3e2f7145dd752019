"""The SQL database: engine, schema, migrations, encryption of columns."""
