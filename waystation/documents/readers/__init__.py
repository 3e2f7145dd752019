"""Readers: the text of files in many formats, extracted in a confined child process."""
