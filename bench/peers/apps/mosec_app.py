"""The workload on mosec: one worker process, which decodes and encodes, too."""

import workload
from mosec import Server, Worker


class Inference(Worker):
    """Computes batches, and decodes and encodes bodies in the same process."""

    def __init__(self):
        """Load the model, in the worker's process."""
        super().__init__()
        self._model = workload.Model()

    def deserialize(self, data):
        """Decode a body."""
        return workload.decode(data)

    def forward(self, data):
        """Compute a batch."""
        return self._model.predict(data)

    def serialize(self, data):
        """Encode a body."""
        return workload.encode(data)


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Inference,
        max_batch_size=workload.MAX_BATCH_SIZE,
        max_wait_time=workload.WAIT_MS,
        timeout=workload.TIMEOUT_S,
        route="/predict",
    )
    server.run()
