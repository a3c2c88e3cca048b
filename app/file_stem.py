"""Names of files that belong to a model."""

from hashlib import blake2b
from urllib.parse import quote

# Linux takes 255 characters; an ending has up to 36.
_MAX_STEM = 200
_DIGEST_BYTES = 32


def file_stem(name: str) -> str:
    """Return what the name of a file begins with: one for each name, in ASCII."""
    stem = quote(name, safe="")
    if len(stem) <= _MAX_STEM:
        return stem
    return blake2b(stem.encode(), digest_size=_DIGEST_BYTES).hexdigest()
