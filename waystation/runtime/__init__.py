"""What connects the parts: Temporal, the store, telemetry, hooks."""
