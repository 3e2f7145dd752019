"""Claude, and every other model behind the Messages protocol."""
