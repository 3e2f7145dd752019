"""What a client of the server may do: permissions, each of which includes those before it."""

from typing import Literal, get_args

ClientPermission = Literal["read", "submit", "approve"]
CLIENT_PERMISSIONS: tuple[ClientPermission, ...] = get_args(ClientPermission)
"""From the least on."""
