"""Pages of the web, fetched by ourselves: from public servers that allow it, within limits of size and time."""
