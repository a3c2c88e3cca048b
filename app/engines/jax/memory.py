"""How much memory a compiled program needs, and how much this process may use.

On a GPU, JAX waits ten seconds for memory before it raises an error, even where a
program needs more than there is. Both figures are diagnostics that JAX may not have on
a platform or in a version: then only the error tells.
"""

import math

import jax

_NEEDED = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")


def device_bytes() -> float:
    """Return the device memory that this process may use, inf if JAX can't tell."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit", 0)
    # -1 is JAX's word for unavailable.
    return limit if limit > 0 else math.inf


def needed_bytes(program: jax.stages.Compiled) -> int:
    """Return the memory that a jax.stages.Compiled needs at least, its inputs too.

    Outputs that take an input's place are counted once. 0 if JAX can't tell.
    """
    sizes = program.memory_analysis()
    needed = sum(getattr(sizes, name, 0) for name in _NEEDED)
    return int(needed - getattr(sizes, "alias_size_in_bytes", 0))
