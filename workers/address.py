"""Addresses to listen on, as settings give them: host and port."""

import socket
from typing import NamedTuple

from waystation.domain.errors import BadInput
from waystation.patterns import proven

_ADDRESS = proven(r"\A(?:\[(?P<bracketed>[^\[\]]++)\]|(?P<plain>[^\[\]:]++)):(?P<port>\d{1,5})")


class Address(NamedTuple):
    """Where to listen."""

    host: str
    """An IP address."""
    port: int


def address_of(setting: str, text: str) -> Address:
    """Read `127.0.0.1:9464`, `localhost:9464` or `[::1]:9464`. Raises BadInput, which names the setting."""
    found = _ADDRESS.fullmatch(text)
    port = int(found["port"]) if found else 0
    if found is None or not 0 < port < 65_536:
        raise BadInput(f"{setting} is {text!r}: write it as host:port, like 0.0.0.0:9464")
    try:
        resolved = socket.getaddrinfo(found["bracketed"] or found["plain"], port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise BadInput(f"{setting} is {text!r}: its host is not known ({error.strerror})") from error
    return Address(str(resolved[0][4][0]), port)
