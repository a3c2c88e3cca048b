"""Hides what TensorFlow writes about missing GPUs on a machine without one.

Its C++ code does so while it is imported, before it reads TF_CPP_MIN_LOG_LEVEL.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_STDERR = 2
_READ_WITHIN_S = 1
# Parts of the lines, as patterns of grep. None of them is an error.
_NOISE = (
    r"WARNING: All log messages before absl::InitializeLog\(\)",
    r"^I0000 .* (cudart_stub|port|cpu_feature_guard)\.cc:",
    r"^E0000 .* cuda_platform\.cc:[0-9]+] failed call to cuInit",
)


@contextmanager
def hidden_noise() -> Iterator[None]:
    """Keep the lines off stderr within the block; all others pass, in their order.

    A process of its own reads them: where the import aborts this process, its last
    words are still written. It has a session of its own, so that Ctrl-C does not end it
    before this process.
    """
    try:
        command = ["grep", "--line-buffered", "-v", "-a", "-E", "|".join(_NOISE)]
        original = os.dup(_STDERR)
        reader = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.PIPE,
            stdout=original,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:  # no grep, or no stderr
        yield
        return
    assert reader.stdin is not None
    os.dup2(reader.stdin.fileno(), _STDERR)
    reader.stdin.close()
    try:
        yield
    finally:
        os.dup2(original, _STDERR)
        os.close(original)
        # A process that another thread has started meanwhile may write to it for long.
        with suppress(subprocess.TimeoutExpired):
            reader.wait(_READ_WITHIN_S)
