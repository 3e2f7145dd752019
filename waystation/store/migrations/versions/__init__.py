"""One module a schema revision. Names start with the revision's number."""
