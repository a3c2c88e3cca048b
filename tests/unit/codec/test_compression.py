"""Compressed bodies: what a small body may unpack to."""

import gzip
import random

import pytest

from app.codec import compression
from app.errors import Late, TooLarge

MIB = 1 << 20
LIMIT = 8 * MIB


def test_large_body_is_unpacked_whole():
    """All pieces are joined in their order."""
    body = random.Random(0).randbytes(3 * MIB)
    assert compression.decompress(gzip.compress(body, 1), "gzip", LIMIT) == body


def test_ratio_beyond_the_first_mebibyte_is_bounded():
    """A megabyte of zeros passes, two do not, and data of an honest ratio does."""
    assert len(compression.decompress(gzip.compress(bytes(MIB)), "gzip", LIMIT)) == MIB
    with pytest.raises(TooLarge, match="unpacks to more than 200 times what was sent"):
        compression.decompress(gzip.compress(bytes(2 * MIB)), "gzip", LIMIT)
    rows = b"0.0, 0.25, 0.0, 0.0, 1.0, " * 9999 + random.Random(0).randbytes(9999)
    body = rows * 8
    assert compression.decompress(gzip.compress(body), "gzip", LIMIT) == body


def test_zeros_behind_honest_data_are_refused():
    """The ratio of the whole body so far counts, so that little is unpacked in vain."""
    honest = gzip.compress(random.Random(0).randbytes(1000))
    bomb = honest + gzip.compress(bytes(2 * MIB))
    with pytest.raises(TooLarge, match="200 times"):
        compression.decompress(bomb, "gzip", LIMIT)


@pytest.mark.parametrize(("members", "refused"), [(4096, False), (4097, True)])
def test_number_of_gzip_members_is_bounded(members, refused):
    """Each empty member of 20 bytes takes a decompressor."""
    body = gzip.compress(b"") * members
    if not refused:
        assert compression.decompress(body, "gzip", LIMIT) == b""
        return
    with pytest.raises(TooLarge, match="more than 4096 gzip members"):
        compression.decompress(body, "gzip", LIMIT)


def test_progress_is_reported_while_a_body_is_unpacked():
    """Each piece reports the bytes so far, and a deadline stops the unpacking."""
    sizes = []

    def progress(size):
        sizes.append(size)
        if len(sizes) == 3:
            raise Late("late")

    body = gzip.compress(random.Random(0).randbytes(MIB))
    with pytest.raises(Late):
        compression.decompress(body, "gzip", LIMIT, progress)
    assert sizes == sorted(sizes)
    assert 0 < sizes[0] < sizes[2] < MIB
