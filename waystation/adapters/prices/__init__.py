"""Prices that a team sets itself."""
