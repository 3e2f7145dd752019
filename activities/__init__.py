"""Units of work, each thin: they call the agents' code over ports and report numbers and references."""
