"""Shared base that every other folder may import: errors, amounts, roles, scopes, files, patterns."""
