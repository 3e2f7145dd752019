"""Waystation: long-running research, analysis and writing agents on Temporal."""

__version__ = "0.2.0"
"""The only place that names the version: the distributions are built with it."""
