"""What happens, in which order: deterministic, and free of any text from the work."""
