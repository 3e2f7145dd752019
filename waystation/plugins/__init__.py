"""What the core does without: redaction by Presidio, the offline model, web, exports, evaluation, request files."""
