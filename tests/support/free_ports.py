"""Free ports of loopback, for what cannot choose one itself."""

import socket


def find_free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
