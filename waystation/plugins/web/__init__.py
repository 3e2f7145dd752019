"""`waystation serve`: an HTTP API and pages in the browser, a client of `waystation.client` as the commands are."""
