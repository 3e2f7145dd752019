"""Reports as people send them: HTML, PDF and DOCX."""
