"""Reports as people send them: HTML, PDF and Word."""
