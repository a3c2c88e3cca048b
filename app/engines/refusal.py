"""Why a model refuses a row, such as for an id out of its vocabulary, or a batch."""

import re

from app.engines.loading import without_folders
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
_ATTRIBUTES = re.compile(r" used by\s+with these attrs:.*")
# Parts of TensorFlow's texts for what it can't compute here, whatever the row, and
# what to do.
_NEVER_COMPUTED = {
    re.compile("'Cudnn"): (
        "It was saved for GPUs: serve it on one, or save it where none is visible"
    ),
    re.compile("No OpKernel|No registered '"): (
        "Serve it on the kind of device that it was saved for"
    ),
    re.compile("Could not find callback|callback pyfunc_"): (
        "A SavedModel does not contain the Python of tf.py_function and "
        "tf.numpy_function: write it with TensorFlow's operations, and save it again"
    ),
    re.compile(r"only support\w* (?:the |for )?NHWC"): (
        "The format channels_first is for GPUs, or for TF_ENABLE_ONEDNN_OPTS=1"
    ),
    re.compile("No such file or directory"): (
        "The graph reads a file that is not there: save it with the model, as a "
        "tf.saved_model.Asset"
    ),
}


def refusal(about: str, text: str) -> RefusedInput:
    """Return TensorFlow's text of an invalid argument as the error of a row.

    It is one line: `about`, and the reason without nodes, folders and places in the
    batch.
    """
    reason = reason_in(text)
    return RefusedInput(f"{about}: {reason}" if reason else about)


def reason_in(text: str) -> str:
    """Return the reason in TensorFlow's text of an error, on one line."""
    lines = _NODE.sub("", text).splitlines()
    reasons = [_CODE.sub("", line) for line in lines if not _NO_REASON.match(line)]
    reason = next((line.strip() for line in reasons if line.strip()), "")
    for pattern in (_PLACE, _TENSOR, _ATTRIBUTES):
        reason = pattern.sub("", reason)
    return without_folders(reason)[:_MAX_CHARS]


def advice_for(text: str) -> str:
    """Return what to do about an error that any row has; "" for all other errors."""
    return next(
        (advice for part, advice in _NEVER_COMPUTED.items() if part.search(text)), ""
    )


def does_not_fit(rows: int) -> OutOfDeviceMemory:
    """Return the error of a batch of so many rows."""
    return OutOfDeviceMemory(
        f"a batch of {rows} rows does not fit into the device's memory"
    )
