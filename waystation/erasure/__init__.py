"""Tasks that are forgotten, and one person in everything."""
