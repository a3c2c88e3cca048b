"""What all tests share."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest

# Trio's plugin imports trio in each process of pytest-xdist, for tests that use it.
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"
from hypothesis import settings

# Compiling takes half of a collection, in each process of pytest-xdist, and much of the
# start of each of some hundred servers.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# The files of tests, half a gigabyte, are in memory where there is room: thousands of
# small ones take a tenth of the unit tests' time. Docker's /dev/shm runs no scripts.
_memory = os.statvfs("/dev/shm")
if _memory.f_bavail * _memory.f_frsize > 2 << 30 and not _memory.f_flag & os.ST_NOEXEC:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# The time of an example depends on the machine's load. `python -m bench.fuzz` has more
# examples.
settings.register_profile("basket", deadline=None, max_examples=25)
settings.load_profile("basket")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect tests without garbage collections, which took a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
