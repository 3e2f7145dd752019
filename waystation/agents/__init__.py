"""The agents: their loop, their roles and their tools, over ports only."""
