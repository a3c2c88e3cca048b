"""Request bodies that are compressed, as their Content-Encoding says."""

import zlib

from app.errors import BadInput, TooLarge, UnknownEncoding

ENCODINGS = ("gzip", "deflate")
# Another name for the same (RFC 9110, 8.4.1.3).
_ALIASES = {"x-gzip": "gzip"}
# Added to zlib's wbits: expect a gzip header. Without it zlib expects its own, which
# HTTP's deflate has (RFC 9110, 8.4.1.2).
_GZIP = 16
# The first bytes of a gzip member; a body may have several (RFC 1952, 2.2).
_MEMBER = b"\x1f\x8b"
# Bytes per call: zlib copies all input that follows the end of a member.
_SLICE = 1 << 14


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the body without one Content-Encoding; identity and empty change nothing.

    At most `max_bytes` + 1 bytes are decompressed.

    Raises:
        UnknownEncoding: another encoding, or several.
        BadInput: malformed, truncated, or followed by other data.
        TooLarge: more than `max_bytes` when decompressed.
    """
    encoding = encoding.strip().lower()
    encoding = _ALIASES.get(encoding, encoding)
    if encoding in ("", "identity") or not body:
        return body
    if encoding not in ENCODINGS:
        raise UnknownEncoding(
            f"Content-Encoding: {encoding[:40]!r} is not known here, but "
            f"{' and '.join(ENCODINGS)} are"
        )
    try:
        return _decompressed(body, encoding, max_bytes)
    except zlib.error as error:
        raise BadInput(f"the body is not {encoding}: {error}") from error


def _decompressed(body: bytes, encoding: str, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    sent, at, left = memoryview(body), 0, max_bytes + 1
    decompressor = _decompressor(encoding)
    while at < len(sent):
        if decompressor.eof:
            if encoding != "gzip" or sent[at : at + len(_MEMBER)] != _MEMBER:
                raise BadInput(f"something follows the {encoding} data of the body")
            decompressor = _decompressor(encoding)
        piece = sent[at : at + _SLICE]
        parts.append(decompressor.decompress(piece, left))
        left -= len(parts[-1])
        if not left:
            raise TooLarge(f"the body is larger than {max_bytes} bytes when unpacked")
        unread = len(decompressor.unconsumed_tail) + len(decompressor.unused_data)
        at += len(piece) - unread
    if not decompressor.eof:
        raise BadInput(f"the body is not {encoding}: it is cut off")
    return b"".join(parts)


def _decompressor(encoding: str) -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS + _GZIP * (encoding == "gzip"))
