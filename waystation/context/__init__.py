"""Transcripts, the view of them that a model is sent, and compaction."""
