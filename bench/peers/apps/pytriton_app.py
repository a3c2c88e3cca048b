"""A Triton server that returns its rows, by PyTriton: HTTP_PORT, GRPC_PORT, WIDTH.

INSTANCES is the number of processes that run the function.
"""

import os

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

_WIDTH = int(os.environ["WIDTH"])
_ADDRESS = "127.0.0.1"


@batch
def _same(**inputs):
    return {"output": inputs["input"]}


if __name__ == "__main__":
    config = TritonConfig(
        http_address=_ADDRESS,
        http_port=int(os.environ["HTTP_PORT"]),
        grpc_address=_ADDRESS,
        grpc_port=int(os.environ["GRPC_PORT"]),
        allow_metrics=False,
    )
    with Triton(config=config) as triton:
        triton.bind(
            model_name="m",
            infer_func=[_same] * int(os.environ["INSTANCES"]),
            inputs=[Tensor(name="input", dtype=np.float32, shape=(_WIDTH,))],
            outputs=[Tensor(name="output", dtype=np.float32, shape=(_WIDTH,))],
            config=ModelConfig(
                max_batch_size=int(os.environ["MAX_BATCH_SIZE"]),
                batcher=DynamicBatcher(),
            ),
        )
        triton.serve()
