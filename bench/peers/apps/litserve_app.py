"""The workload on LitServe: one worker process behind one HTTP process."""

import os
from typing import Annotated

import litserve
import workload
from fastapi import Body, Response


class _Api(litserve.LitAPI):
    def setup(self, device):
        """Load the model, in the worker's process."""
        self._model = workload.Model()

    def predict(self, batch):
        """Compute a batch."""
        return self._model.predict(batch)

    def batch(self, inputs):
        """Return the rows; the model stacks them."""
        return inputs

    def encode_response(self, output):
        """Return a response, because FastAPI's own encoder is slower."""
        return Response(workload.encode(output), media_type="application/json")


class Rows(_Api):
    """Takes JSON, which LitServe has parsed."""

    def decode_request(self, request):
        """Return one row."""
        return workload.row_of(request)


class Pictures(_Api):
    """Takes JPEGs."""

    def decode_request(self, request: Annotated[bytes, Body(media_type="image/jpeg")]):
        """Return one row."""
        return workload.decode(request)


if __name__ == "__main__":
    kind = Pictures if workload.TAKES_PICTURES else Rows
    api = kind(
        max_batch_size=workload.MAX_BATCH_SIZE,
        batch_timeout=workload.WAIT_MS / 1000,
        api_path="/predict",
    )
    server = litserve.LitServer(
        api,
        accelerator="cpu",
        workers_per_device=1,
        timeout=workload.TIMEOUT_S,
        fast_queue=bool(os.environ.get("FAST_QUEUE")),
    )
    server.run(
        host="127.0.0.1",
        port=workload.PORT,
        log_level="error",
        generate_client_file=False,
        access_log=False,
    )
