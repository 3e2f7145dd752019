"""The entry point of the processes that do the work: settings are read here, and everything is wired together."""
