"""Permanent removal: forgetting tasks, and erasing one person from everything."""
