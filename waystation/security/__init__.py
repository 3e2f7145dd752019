"""Defences against untrusted text: escaping, and confined child processes that read it."""
