"""Free ports on loopback, for servers that cannot choose one themselves."""

import socket


def find_free_port() -> int:
    """Return a port at which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
