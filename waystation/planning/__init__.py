"""The plan of a task, and the planner that makes it."""
