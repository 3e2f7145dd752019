"""Documents, tables and web pages: read, searched and cited."""
