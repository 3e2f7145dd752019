"""One plug-in of each group."""
