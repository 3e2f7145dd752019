"""The agents' tools, and the toolbox that runs them."""
