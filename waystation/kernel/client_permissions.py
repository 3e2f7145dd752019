"""Permissions of the server's clients; each includes those before it."""

from typing import Literal, get_args

ClientPermission = Literal["read", "submit", "approve"]
CLIENT_PERMISSIONS: tuple[ClientPermission, ...] = get_args(ClientPermission)
"""All permissions, the weakest first."""
