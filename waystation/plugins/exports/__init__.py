"""Exports reports as HTML, PDF and DOCX."""
