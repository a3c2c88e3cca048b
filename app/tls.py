"""TLS as Gunicorn's options set it: --certfile, --keyfile, --ca-certs, --cert-reqs."""

import ssl
from typing import Any, NamedTuple


class TlsFiles(NamedTuple):
    """Files in PEM, and whether a client must have a certificate."""

    key: str
    certificate: str
    authorities: str | None
    requires_client: bool


def files_of(cfg: Any) -> TlsFiles | None:
    """Return what gRPC needs of Gunicorn's settings; None: no TLS."""
    if not (cfg.certfile or cfg.keyfile):
        return None
    requires_client = cfg.cert_reqs == ssl.CERT_REQUIRED
    return TlsFiles(cfg.keyfile, cfg.certfile, cfg.ca_certs, requires_client)


def context_of(cfg: Any) -> ssl.SSLContext | None:
    """Return the context of Gunicorn's settings and its hook; None: no TLS."""
    if not (cfg.certfile or cfg.keyfile):
        return None

    def default() -> ssl.SSLContext:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=cfg.ca_certs
        )
        context.load_cert_chain(cfg.certfile, cfg.keyfile)
        context.verify_mode = ssl.VerifyMode(cfg.cert_reqs)
        if cfg.ciphers:
            context.set_ciphers(cfg.ciphers)
        return context

    context: ssl.SSLContext = cfg.ssl_context(cfg, default)
    return context
