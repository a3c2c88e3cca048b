"""The workload on BentoML: its adaptive batching, one worker process.

It takes and gives JSON only: with batching, BentoML reads no body that is a picture.
"""

import bentoml
import numpy as np
import workload


@bentoml.service(workers=1, traffic={"timeout": workload.TIMEOUT_S})
class Peer:
    """One endpoint."""

    def __init__(self):
        """Load the model, in the worker's process."""
        self._model = workload.Model()

    @bentoml.api(
        route="/predict",
        batchable=True,
        max_batch_size=workload.MAX_BATCH_SIZE,
        max_latency_ms=workload.TIMEOUT_S * 1000,
    )
    def predict(self, instances: np.ndarray) -> np.ndarray:
        """The rows of several requests to as many answers."""
        return np.stack(self._model.predict(instances.astype(np.float32)))
