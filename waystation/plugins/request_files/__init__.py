"""Request bodies of the Messages API in files: read into the domain, and written back unchanged."""
