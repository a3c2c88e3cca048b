"""The workload on NVIDIA's pytriton: Triton in front of one Python process.

Triton speaks only the Open Inference Protocol, on its own path.
"""

import sys

import numpy as np
import workload
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

if __name__ == "__main__":
    grpc_port, metrics_port = map(int, sys.argv[1:])
    model = workload.Model()

    @batch
    def infer(rows):
        """Compute a batch."""
        return {"answers": np.stack(model.predict(list(rows)))}

    settings = TritonConfig(
        http_address="127.0.0.1",
        http_port=workload.PORT,
        grpc_port=grpc_port,
        metrics_port=metrics_port,
        log_verbose=0,
    )
    with Triton(config=settings) as triton:
        triton.bind(
            model_name="peer",
            infer_func=infer,
            inputs=[Tensor(name="rows", dtype=np.float32, shape=(-1,))],
            outputs=[Tensor(name="answers", dtype=np.float32, shape=(-1,))],
            config=ModelConfig(
                max_batch_size=workload.MAX_BATCH_SIZE,
                batcher=DynamicBatcher(
                    max_queue_delay_microseconds=workload.WAIT_MS * 1000
                ),
            ),
        )
        triton.serve()
