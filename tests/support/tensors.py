"""Requests of the Open Inference Protocol, built by Triton's own client."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import np_to_triton_dtype

from app.engines.base import DEFAULT_SIGNATURE, Array, Signature, Tensors, TensorSpec


def echoes(**inputs: tuple) -> Signature:
    """Return a signature of inputs (dtype, sizes of a row) and equal outputs out_*."""
    specs = [
        TensorSpec(name, np.dtype(given[0]), given[1:])
        for name, given in inputs.items()
    ]
    return Signature(
        tuple(specs),
        tuple(TensorSpec(f"out_{spec.name}", spec.dtype, spec.shape) for spec in specs),
    )


class EchoAll:
    """An engine whose outputs are its inputs."""

    platform = "echo_all"

    def __init__(self, **inputs: tuple) -> None:
        self.signatures = {DEFAULT_SIGNATURE: echoes(**inputs)}
        self.batches: list[Tensors] = []

    def run(self, batch: Tensors, signature_name: str = DEFAULT_SIGNATURE) -> Tensors:
        self.batches.append(batch)
        return {f"out_{name}": array for name, array in batch.items()}

    def close(self) -> None:
        """Hold no resources."""


def inputs_of(arrays: Mapping[str, Array], *, binary: bool) -> list[InferInput]:
    """Return the arrays as tritonclient's inputs."""
    made = []
    for name, array in arrays.items():
        tensor = InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array, binary_data=binary)
        made.append(tensor)
    return made


def outputs_of(names: Iterable[str], *, binary: bool) -> list[InferRequestedOutput]:
    """Return a request for these outputs."""
    return [InferRequestedOutput(name, binary_data=binary) for name in names]


def body_of(
    arrays: Mapping[str, Array], *, binary: bool, **options: Any
) -> tuple[bytes, int | None]:
    """Return tritonclient's request body, and the length of its JSON part."""
    inputs = inputs_of(arrays, binary=binary)
    return InferenceServerClient.generate_request_body(inputs, **options)
