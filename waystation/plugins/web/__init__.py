"""`waystation serve`: an HTTP API, web pages and an MCP server, which use `waystation.client` as the commands do."""
