"""The two versions that are compared, and the rows that both answer."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.engines.base import Signature, Tensors
from app.user_code.user_code import UserCode


@dataclass(frozen=True)
class Side:
    """One of two versions that are compared.

    `run` computes a batch of a signature: inputs (rows, *shape) to outputs (rows,
    *shape). It raises what the model raises, and may wait. `clock` returns seconds; one
    that stands still while `run` waits keeps the waiting out of all times.
    """

    version: int
    signatures: Mapping[str, Signature]
    user_code: UserCode | None
    run: Callable[[Tensors, str], Tensors]
    clock: Callable[[], float] = time.perf_counter

    def takes_objects(self) -> bool:
        """Return whether its rows are instances of a service.py, and no tensors."""
        return self.user_code is not None and self.user_code.takes_objects

    def reads_instances(self) -> bool:
        """Return whether clients send instances that its service.py preprocesses."""
        return self.user_code is not None and self.user_code.reads_instances


@dataclass(frozen=True)
class RowGroup:
    """Rows of one signature and of one shape; or instances for service.py.

    `inputs` are (rows, *shape) by name, and empty if there are `instances`, which each
    version preprocesses itself. `request_ids` are those of captured rows.
    """

    signature_name: str
    inputs: Tensors
    instances: Sequence[Any] = ()
    request_ids: Sequence[str] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.instances) or max(map(len, self.inputs.values()), default=0)
