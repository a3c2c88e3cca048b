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

# Threshold of the youngest generation. Requests leave no cycles behind. With Python's
# 700, collections took 5 % of the event loop's time for a small request.
_YOUNGEST_THRESHOLD = 10_000


def collect_and_freeze() -> None:
    """Collect garbage, and freeze the rest; called after each load and unload.

    Each version ran in a thread of its own, whose free memory goes back to the system.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNGEST_THRESHOLD)
    give_back()
