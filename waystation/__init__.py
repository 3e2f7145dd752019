"""Waystation: long-running research, analysis and writing agents on Temporal."""
