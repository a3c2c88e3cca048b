"""TLS without a certificate: anonymous Diffie-Hellman."""

import ssl


def anonymous(context: ssl.SSLContext) -> ssl.SSLContext:
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # The next version knows no such ciphers.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("AECDH:@SECLEVEL=0")
    return context


def server_context() -> ssl.SSLContext:
    return anonymous(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def client_context() -> ssl.SSLContext:
    return anonymous(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
