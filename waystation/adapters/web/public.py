"""Which addresses may be connected to. Asked where a connection is made, of the very address that it is made to: so
neither a redirect nor a name that resolves anew each time leads elsewhere.
"""

from collections.abc import Sequence
from errno import EACCES
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import AddressFamily, SocketKind, socket

Target = tuple[AddressFamily | int, SocketKind | int, int, str, tuple[object, ...]]
"""What a name was resolved to, as `getaddrinfo` gives it."""
Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_UNICAST = ip_network("2000::/3")
"""Where all public addresses of IPv6 are; what lies outside of it translates, or is reserved."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""NAT64: the last four bytes are the address of IPv4 that is meant."""
_NEVER = (
    ip_network("168.63.129.16/32"),  # Azure's metadata and agent, at an address that looks public
    ip_network("192.0.0.0/24"),  # protocol assignments, Oracle's metadata among them; older Pythons call it global
    ip_network("192.88.99.0/24"),  # relays of 6to4
    ip_network("3fff::/20"),  # documentation
)


class NotPublic(OSError):
    """The connection was not made, because the address is not a public one. The message does not name it."""

    def __init__(self) -> None:
        super().__init__(EACCES, "not a public address")


class PublicOnly:
    """A socket factory that makes none for loopback, private, link-local, multicast and other special addresses."""

    def __init__(self, reachable: Sequence[Network] = ()) -> None:
        """`reachable`: networks that may be connected to although they are not public."""
        self._reachable = reachable

    def __call__(self, target: Target) -> socket:
        """A socket for a connection to the target. Raises NotPublic."""
        family, kind, protocol, _, where = target
        address = _meant(ip_address(str(where[0]).partition("%")[0]))
        if not is_public(address) and not any(address in network for network in self._reachable):
            raise NotPublic
        return socket(family, kind, protocol)


def is_public(address: Address) -> bool:
    """Whether the address belongs to somebody on the internet."""
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NEVER)
    return address.is_global and not special


def _meant(address: Address) -> Address:
    """The address of IPv4 that one of IPv6 stands for."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address
