"""Temporal activities: thin units of work that call the core over ports and return numbers and references."""
