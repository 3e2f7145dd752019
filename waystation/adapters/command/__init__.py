"""Programs of the team's on the worker's machine."""
