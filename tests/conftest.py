"""What all tests share."""

from hypothesis import settings

# The time of an example depends on the machine's load. `python -m bench.fuzz` has more
# examples.
settings.register_profile("basket", deadline=None, max_examples=50)
settings.load_profile("basket")
