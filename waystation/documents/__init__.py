"""Documents, tables and web pages: reading, redacting, searching and citing them."""
