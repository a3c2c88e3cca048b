"""The workload on BentoML, with its adaptive batching in one worker process.

BentoML batches JSON only, and no bodies that are pictures.
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
        """Compute the rows of several requests."""
        return np.stack(self._model.predict(instances.astype(np.float32)))
