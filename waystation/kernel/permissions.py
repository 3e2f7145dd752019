"""What a client of the server may do: permissions, each of which includes those before it."""

from typing import Literal, get_args

Permit = Literal["read", "submit", "approve"]
PERMITS: tuple[Permit, ...] = get_args(Permit)
"""From the least on."""
