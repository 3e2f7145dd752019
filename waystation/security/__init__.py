"""Text of strangers, child processes that may break, and what these give up."""
