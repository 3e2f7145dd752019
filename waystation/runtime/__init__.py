"""Connections of the parts: Temporal, the store, telemetry, hooks."""
