"""What whoever asks a server may do."""

from typing import Literal, get_args

Permit = Literal["read", "submit", "approve"]
"""Each includes those before it."""
PERMITS: tuple[Permit, ...] = get_args(Permit)
"""From the least on."""
