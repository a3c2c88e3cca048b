"""Python's garbage collection around loads and unloads.

TensorFlow and Keras create hundreds of thousands of objects. A full collection visits
all of them and holds the GIL meanwhile, so every request waits. Frozen objects are not
visited. They are not freed either, so all are unfrozen before the collection that
follows a load or unload.

Requests under way are frozen, too. They are freed by reference counting; only cycles
stay until the next load or unload.
"""

import gc

from app.memory import give_back

# Threshold of the youngest generation. Requests leave no cycles behind, and each has
# some 50 objects: collections took 5 % of the event loop's time for a small request
# with Python's 700, and with 10,000 a tenth of it for 1,000 requests under way.
_YOUNGEST_THRESHOLD = 50_000


def collect_and_freeze() -> None:
    """Collect garbage, and freeze the rest; called after each load and unload.

    Each version ran in a thread of its own, whose free memory goes back to the system.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST_THRESHOLD)
    give_back()
