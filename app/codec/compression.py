"""Request bodies that are compressed, as their Content-Encoding says."""

import io
import zlib
from collections.abc import Callable

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
# Limits on what a small body may cost. Numbers in JSON shrink to a tenth, and rows of
# zeros to a hundredth. Parallel compressors write a member for some 64 KiB.
MAX_RATIO = 200
_ANY_RATIO_BYTES = 1 << 20
MAX_MEMBERS = 4096

# Called for each piece of a body with the number of bytes that are decompressed so far.
Progress = Callable[[int], None]


def decompress(
    body: bytes, encoding: str, max_bytes: int, progress: Progress = lambda _: None
) -> bytes:
    """Return the body without one Content-Encoding; identity and empty change nothing.

    At most `max_bytes` + 1 bytes are decompressed.

    Raises:
        UnknownEncoding: another encoding, or several.
        BadInput: malformed, truncated, or followed by other data.
        TooLarge: more than `max_bytes` when decompressed, beyond the first MiB more
            than MAX_RATIO times what was sent, or more than MAX_MEMBERS gzip members.
        BasketError: `progress` raised it.
    """
    if not encoding or not body:
        return body
    encoding = encoding.strip().lower()
    encoding = _ALIASES.get(encoding, encoding)
    if encoding in ("", "identity"):
        return body
    if encoding not in ENCODINGS:
        raise UnknownEncoding(
            f"Content-Encoding: {encoding[:40]!r} is not known here, but "
            f"{' and '.join(ENCODINGS)} are"
        )
    try:
        return _decompressed(body, encoding, max_bytes, progress)
    except zlib.error as error:
        raise BadInput(f"the body is not {encoding}: {error}") from error


def _decompressed(
    body: bytes, encoding: str, max_bytes: int, progress: Progress
) -> bytes:
    # Its value is returned without a copy.
    unpacked = io.BytesIO()
    sent, at, members = memoryview(body), 0, 1
    decompressor = _decompressor(encoding)
    while at < len(sent):
        if decompressor.eof:
            if encoding != "gzip" or sent[at : at + len(_MEMBER)] != _MEMBER:
                raise BadInput(f"something follows the {encoding} data of the body")
            decompressor = _decompressor(encoding)
            members += 1
        piece = sent[at : at + _SLICE]
        left = max_bytes + 1 - unpacked.tell()
        unpacked.write(decompressor.decompress(piece, left))
        unread = len(decompressor.unconsumed_tail) + len(decompressor.unused_data)
        at += len(piece) - unread
        _check_size(unpacked.tell(), at, members, max_bytes)
        progress(unpacked.tell())
    if not decompressor.eof:
        raise BadInput(f"the body is not {encoding}: it is cut off")
    return unpacked.getvalue()


def _check_size(unpacked: int, sent: int, members: int, max_bytes: int) -> None:
    """Check the bytes so far."""
    if unpacked > max_bytes:
        raise TooLarge(f"the body is larger than {max_bytes} bytes when unpacked")
    if unpacked > max(MAX_RATIO * sent, _ANY_RATIO_BYTES):
        raise TooLarge(
            f"the body unpacks to more than {MAX_RATIO} times what was sent; send it "
            "without Content-Encoding"
        )
    if members > MAX_MEMBERS:
        raise TooLarge(f"the body has more than {MAX_MEMBERS} gzip members")


def _decompressor(encoding: str) -> "zlib._Decompress":
    return zlib.decompressobj(zlib.MAX_WBITS + _GZIP * (encoding == "gzip"))
