"""What all tests share."""

import gc
from collections.abc import Iterator

import pytest
from hypothesis import settings

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
