"""Bodies that come compressed, as Content-Encoding says."""

import zlib

from app.errors import BadInput, TooLarge, UnknownEncoding

ENCODINGS = ("gzip", "deflate")
# Equal to it (RFC 9110, 8.4.1.3).
_ALIASES = {"x-gzip": "gzip"}
# zlib's sign for a gzip header; without it the header is zlib's own, as in HTTP's
# deflate (RFC 9110, 8.4.1.2).
_GZIP = 16
# How each of a gzip file's members begins (RFC 1952, 2.2): there may be several.
_MEMBER = b"\x1f\x8b"
# What is looked at once: all that follows a member in it is copied.
_AT_A_TIME = 1 << 14


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo one Content-Encoding; empty and identity leave the body as it is.

    No more than `max_bytes` and one are ever unpacked.

    Raises:
        UnknownEncoding: another one, or several.
        BadInput: not what the encoding says, cut off, or with more behind it.
        TooLarge: more than `max_bytes`.
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
        return _unpacked(body, encoding, max_bytes)
    except zlib.error as error:
        raise BadInput(f"the body is not {encoding}: {error}") from error


def _unpacked(body: bytes, encoding: str, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    sent, at, left = memoryview(body), 0, max_bytes + 1
    unpacker = _unpacker(encoding)
    while at < len(sent):
        if unpacker.eof:
            if encoding != "gzip" or sent[at : at + len(_MEMBER)] != _MEMBER:
                raise BadInput(f"something follows the {encoding} data of the body")
            unpacker = _unpacker(encoding)
        piece = sent[at : at + _AT_A_TIME]
        parts.append(unpacker.decompress(piece, left))
        left -= len(parts[-1])
        if not left:
            raise TooLarge(f"the body is larger than {max_bytes} bytes when unpacked")
        at += len(piece) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
    if not unpacker.eof:
        raise BadInput(f"the body is not {encoding}: it is cut off")
    return b"".join(parts)


def _unpacker(encoding: str) -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS + _GZIP * (encoding == "gzip"))
