"""Both ends of a connection, and trust in a proxy's word for its client's scheme."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence

from app.call import Peer

_EVERYWHERE = ("0.0.0.0/0", "::/0")
Networks = Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network]


def trusted_networks(addresses: Sequence[str]) -> Networks:
    """Return the networks of Gunicorn's `forwarded_allow_ips`; `*` means all.

    Raises:
        ValueError: one of them is not an address.
    """
    given = _EVERYWHERE if "*" in addresses else addresses
    return [ipaddress.ip_network(each) for each in given if each]


def peers_by_scheme(
    transport: asyncio.BaseTransport, trusted: Networks
) -> Mapping[str, Peer]:
    """Return a connection's peer for each scheme that a header may name; "": none.

    A header of a client in a trusted network counts, or of one at a Unix socket.
    """
    scheme = "https" if transport.get_extra_info("sslcontext") else "http"
    client = transport.get_extra_info("peername")
    if isinstance(client, tuple):
        server = transport.get_extra_info("sockname")
        peer = Peer(client[0], client[1], server[0], server[1], scheme)
        address = ipaddress.ip_address(peer.client.partition("%")[0])
        is_trusted = any(address in network for network in trusted)
    else:
        peer, is_trusted = Peer("", 0, "unix", 0, scheme), True
    return {
        named: peer._replace(scheme=named) if is_trusted and named else peer
        for named in ("", "http", "https")
    }
