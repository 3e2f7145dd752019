"""The plan of a task, and who makes it."""
