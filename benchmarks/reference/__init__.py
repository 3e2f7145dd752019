"""Writes the pages in docs/reference that are made from the code: `make reference`."""
