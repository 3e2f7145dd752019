"""Transcripts, and compaction: what of a transcript a model is sent."""
