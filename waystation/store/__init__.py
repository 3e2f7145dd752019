"""The SQL database: engine, schema, migrations and column encryption."""
