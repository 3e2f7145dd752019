"""The agents' tools, one file each, and the box that runs them."""
