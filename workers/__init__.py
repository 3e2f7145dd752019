"""The entry point of worker processes: reads the settings and wires everything together."""
