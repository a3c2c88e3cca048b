"""Both ends of a connection, and trust in a proxy's word for its client's scheme."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence

from app.call import Peer


class TrustedProxies:
    """Proxies whose headers are trusted: Gunicorn's `forwarded_allow_ips`."""

    def __init__(self, addresses: Sequence[str]) -> None:
        """Store addresses and networks; `*` means all.

        Raises:
            ValueError: one of them is not an address.
        """
        self._trusts_all = "*" in addresses
        self._networks = [
            ipaddress.ip_network(each) for each in addresses if each not in ("*", "")
        ]

    def has(self, client: str) -> bool:
        """Return whether a client is one of them; one at a Unix socket always is."""
        if not client or self._trusts_all:
            return True
        address = ipaddress.ip_address(client.partition("%")[0])
        return any(address in network for network in self._networks)


def peers_by_scheme(
    transport: asyncio.BaseTransport, proxies: TrustedProxies
) -> Mapping[str, Peer]:
    """Return a connection's peer for each scheme that a header may name; "": none."""
    scheme = "https" if transport.get_extra_info("sslcontext") else "http"
    peer = Peer("", 0, "unix", 0, scheme)
    client = transport.get_extra_info("peername")
    if isinstance(client, tuple):
        server = transport.get_extra_info("sockname")
        peer = Peer(client[0], client[1], server[0], server[1], scheme)
    is_trusted = proxies.has(peer.client)
    return {
        named: peer._replace(scheme=named) if is_trusted and named else peer
        for named in ("", "http", "https")
    }
