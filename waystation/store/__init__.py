"""The SQL database: engine, schema, migrations, column encryption, and the port to the store."""
