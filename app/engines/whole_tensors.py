"""Tensors of a model that knows no rows: one request, which is one row, is one run."""

from app.engines.base import Array, Signature, Tensors


def model_inputs(batch: Tensors, signature: Signature) -> Tensors:
    """Return a batch as the model takes it: a row's tensors if it takes whole ones."""
    if not signature.takes_whole_tensors:
        return batch
    return {name: array.reshape(array.shape[1:]) for name, array in batch.items()}


def row_outputs(outputs: Tensors, signature: Signature) -> Tensors:
    """Return a model's outputs as rows: as one row if it gives whole tensors."""
    if not signature.takes_whole_tensors:
        return outputs
    return {name: _as_row(array) for name, array in outputs.items()}


def _as_row(tensor: Array) -> Array:
    # A single string is an array of NumPy's own dtype for bytes, not of objects.
    dtype = object if tensor.dtype.kind == "S" else tensor.dtype
    return tensor.astype(dtype, copy=False)[None]
