"""Why a model refuses a row, such as for an id out of its vocabulary, or a batch."""

import re

from app.errors import OutOfDeviceMemory, RefusedInput

_MAX_CHARS = 200
# Parts of TensorFlow's texts: the operation, its node, and where Python defined it.
_NODE = re.compile(r"\{\{\w+ [^}]*\}\}|\s*\[\[.*?\]\]|\s*\[Op:.*", re.DOTALL)
_NO_REASON = re.compile(
    r"\s*$|Graph execution error|Detected at node|<stack traces|\d+ root error|  +\w"
)
_CODE = re.compile(r"^\s*\(\d+\) [A-Z_]+:\s*")
# The place of a value is that in the batch, not in the request.
_PLACE = re.compile(r"\bindices\[[\d, ]*\] = ")
_TENSOR = re.compile(r" \([\w./-]+:\d+\)")
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/'\"]+/)+")


def refusal(about: str, text: str) -> RefusedInput:
    """Return TensorFlow's text of an invalid argument as the error of a row.

    It is one line: `about`, and the reason without nodes, folders and places in the
    batch.
    """
    lines = _NODE.sub("", text).splitlines()
    reasons = [_CODE.sub("", line) for line in lines if not _NO_REASON.match(line)]
    reason = next((line.strip() for line in reasons if line.strip()), "")
    for pattern in (_PLACE, _TENSOR, _FOLDERS):
        reason = pattern.sub("", reason)
    return RefusedInput(f"{about}: {reason[:_MAX_CHARS]}" if reason else about)


def does_not_fit(rows: int) -> OutOfDeviceMemory:
    """Return the error of a batch of so many rows."""
    return OutOfDeviceMemory(
        f"a batch of {rows} rows does not fit into the device's memory"
    )
