"""One module for each schema revision. Names start with the revision's number."""
