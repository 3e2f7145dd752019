"""Request bodies of the Messages API that lie in files: read into the domain, and written back as they were."""
