"""Bodies that come compressed, as Content-Encoding says."""

import zlib

from app.errors import BadInput, TooLarge, UnknownEncoding

ENCODINGS = ("gzip", "deflate")
# zlib's sign for a gzip header; without it the header is zlib's own, as in HTTP's
# deflate (RFC 9110, 8.4.1.2).
_GZIP = 16


def decompress(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Undo one Content-Encoding; empty and identity leave the body as it is.

    No more than `max_bytes` and one are ever unpacked.

    Raises:
        UnknownEncoding: another one, or several.
        BadInput: not what the encoding says, cut off, or with more behind it.
        TooLarge: more than `max_bytes`.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity") or not body:
        return body
    if encoding not in ENCODINGS:
        raise UnknownEncoding(
            f"Content-Encoding: {encoding[:40]!r} is not known here, but "
            f"{' and '.join(ENCODINGS)} are"
        )
    unpacker = zlib.decompressobj(zlib.MAX_WBITS + _GZIP * (encoding == "gzip"))
    try:
        plain = unpacker.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise BadInput(f"the body is not {encoding}: {error}") from error
    if len(plain) > max_bytes:
        raise TooLarge(f"the body is larger than {max_bytes} bytes when unpacked")
    if not unpacker.eof:
        raise BadInput(f"the body is not {encoding}: it is cut off")
    if unpacker.unused_data:
        raise BadInput(f"something follows the {encoding} data of the body")
    return plain
