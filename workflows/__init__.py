"""Temporal workflows: deterministic orchestration that holds no text from the work itself."""
