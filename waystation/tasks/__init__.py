"""Tasks and sessions: requests, state, signals, progress, approvals, schedules."""
