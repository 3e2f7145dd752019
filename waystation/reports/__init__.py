"""Reports: assembled, compared, reviewed and exported."""
