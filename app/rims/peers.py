"""Both ends of a connection, and trust in a proxy's word for its client's scheme."""

import asyncio
import ipaddress
from collections.abc import Mapping, Sequence

from app.call import Peer


def peer_of(transport: asyncio.BaseTransport) -> Peer:
    """Return the peer of an open connection."""
    scheme = "https" if transport.get_extra_info("sslcontext") else "http"
    client = transport.get_extra_info("peername")
    if not isinstance(client, tuple):
        return Peer("", 0, "unix", 0, scheme)
    server = transport.get_extra_info("sockname")
    return Peer(client[0], client[1], server[0], server[1], scheme)


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

    def peers_by_scheme(self, peer: Peer) -> Mapping[str, Peer]:
        """Return the peer for each scheme that a header may name, and for "", none."""
        if not self._trusts(peer.client):
            return {"": peer, "http": peer, "https": peer}
        return {
            "": peer,
            "http": peer._replace(scheme="http"),
            "https": peer._replace(scheme="https"),
        }

    def _trusts(self, client: str) -> bool:
        """Return whether a client is a proxy; one at a Unix socket always is."""
        if not client or self._trusts_all:
            return True
        address = ipaddress.ip_address(client.partition("%")[0])
        return any(address in network for network in self._networks)
