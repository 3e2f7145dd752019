"""The connection to Temporal, and the dev server that this machine can start."""
