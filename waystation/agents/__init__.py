"""Agents: their loop, roles and tools, over ports only."""
