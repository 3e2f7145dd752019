"""Reports as people send them: HTML and PDF."""
