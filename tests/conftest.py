"""What all tests share."""

from hypothesis import settings

# What an example may take depends on the machine, and on what else runs on it.
settings.register_profile("basket", deadline=None)
settings.load_profile("basket")
