"""Claude, and whatever else speaks the Messages protocol."""
