"""The workload on Ray Serve: one replica behind one proxy."""

import ray
import workload
from ray import serve
from starlette.responses import Response


@serve.deployment(num_replicas=1, max_ongoing_requests=4 * workload.MAX_BATCH_SIZE)
class Peer:
    """One endpoint that batches calls."""

    def __init__(self):
        """Load the model, in the replica's process."""
        self._model = workload.Model()

    @serve.batch(
        max_batch_size=workload.MAX_BATCH_SIZE,
        batch_wait_timeout_s=workload.WAIT_MS / 1000,
    )
    async def compute(self, rows):
        """Compute a batch."""
        return self._model.predict(rows)

    async def __call__(self, request):
        """Decode a body, compute, encode."""
        answer = await self.compute(workload.decode(await request.body()))
        return Response(workload.encode(answer), media_type="application/json")


if __name__ == "__main__":
    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": workload.PORT})
    serve.run(Peer.bind(), route_prefix="/predict", blocking=True)
