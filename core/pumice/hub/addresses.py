"""Classify IP addresses: a server's clients may make it connect to public ones only."""

from __future__ import annotations

import ipaddress
import socket

from pumice.errors import HubError

_UNICAST6 = ipaddress.IPv6Network("2000::/3")  # all global unicast addresses
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: the last four bytes are an IPv4 address
_RELAYS4 = ipaddress.IPv4Network("192.88.99.0/24")  # RFC 7526
# special-purpose parts of 2000::/3, RFC 6890 and its registry: Teredo and ORCHID, documentation, 6to4, documentation
_SPECIAL6 = [ipaddress.IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")]


def is_public(address: str) -> bool:
    """Return True if ``address`` belongs to a host of the public internet.

    False for private, loopback, link-local, shared (CGNAT), multicast, reserved and unspecified addresses, for IPv6
    addresses that embed such an IPv4 address, and for 6to4, Teredo and IPv4-compatible addresses of any kind.
    """
    ip = ipaddress.ip_address(address)
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped:
            return is_public(str(ip.ipv4_mapped))
        if ip in _NAT64:
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
        return not ip.scope_id and ip in _UNICAST6 and not any(ip in network for network in _SPECIAL6)
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip in _RELAYS4)


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host in the system's order of preference. Raises OSError."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # a label that is empty or longer than 63
        raise OSError(f"{host}: not a valid host name") from None
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def resolve_public(host: str, port: int) -> list[str]:
    """Like ``resolve``, but raise HubError if any of the addresses is not public."""
    addresses = resolve(host, port)
    if private := [address for address in addresses if not is_public(address)]:
        raise HubError(f"{host} is {private[0]}, but clients of the server may use public addresses only")
    return addresses
