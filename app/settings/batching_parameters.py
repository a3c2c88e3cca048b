"""TensorFlow Serving's batching parameters file, in protobuf's text format.

The message is BatchingParameters of TensorFlow Serving's session_bundle_config.proto.
Its type is built here in a descriptor pool of its own, as TensorFlow Serving's package
may be installed too and register the original.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from app.errors import SettingsError

_Field = descriptor_pb2.FieldDescriptorProto


def _wrapped(name: str, number: int, wrapper: str) -> Any:
    """Return an optional field, whose value is in a wrapper message."""
    kind = f".google.protobuf.{wrapper}"
    return _Field(name=name, number=number, label=_Field.LABEL_OPTIONAL, type_name=kind)


_FIELDS = (
    _wrapped("max_batch_size", 1, "Int64Value"),
    _wrapped("batch_timeout_micros", 2, "Int64Value"),
    _wrapped("max_enqueued_batches", 3, "Int64Value"),
    _wrapped("num_batch_threads", 4, "Int64Value"),
    _wrapped("thread_pool_name", 5, "StringValue"),
    _Field(
        name="allowed_batch_sizes",
        number=6,
        label=_Field.LABEL_REPEATED,
        type=_Field.TYPE_INT64,
    ),
    _Field(
        name="pad_variable_length_inputs",
        number=7,
        label=_Field.LABEL_OPTIONAL,
        type=_Field.TYPE_BOOL,
    ),
    _wrapped("enable_large_batch_splitting", 8, "BoolValue"),
    _wrapped("max_execution_batch_size", 9, "Int64Value"),
)
# Known fields without an effect here, and why.
_NOT_APPLIED = {
    "num_batch_threads": "is meaningless here: each model has one batching thread",
    "thread_pool_name": "is meaningless here: there is no pool of batch threads",
    "pad_variable_length_inputs": (
        "is not applied: rows of different shapes never share a batch"
    ),
    "enable_large_batch_splitting": (
        "is meaningless here: a request larger than a batch is always split"
    ),
    "max_execution_batch_size": (
        "is not applied: max_batch_size is the most rows that run together"
    ),
}
_LONGEST_TEXT = 200


@dataclass(frozen=True)
class BatchingParameters:
    """The fields that are set in a file, by their names.

    `limits` are applied, and their values not yet checked; `notes` are a line for each
    field without an effect.
    """

    limits: dict[str, Any]
    notes: list[str]


def read(file: Path) -> BatchingParameters:
    """Read a batching file.

    Raises:
        SettingsError: it can't be read, or has an unknown field or a value of another
            type; the text has the line.
    """
    try:
        message = text_format.Parse(file.read_text(encoding="utf-8"), _message_type()())
    except OSError as error:
        raise SettingsError(error.strerror or type(error).__name__) from error
    except UnicodeDecodeError as error:
        raise SettingsError("the file is not UTF-8 text") from error
    except text_format.ParseError as error:
        # The text begins with line:column.
        raise SettingsError(f"line {str(error)[:_LONGEST_TEXT]}") from error
    values = {field.name: _unwrapped(value) for field, value in message.ListFields()}
    notes = [f"{name} {_NOT_APPLIED[name]}" for name in values if name in _NOT_APPLIED]
    limits = {name: values[name] for name in values if name not in _NOT_APPLIED}
    return BatchingParameters(limits, notes)


def _message_type() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(wrappers_pb2.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="batching_parameters.proto",
        package="tensorflow.serving",
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    file.message_type.add(name="BatchingParameters", field=_FIELDS)
    pool.Add(file)
    return message_factory.GetMessageClass(
        pool.FindMessageTypeByName("tensorflow.serving.BatchingParameters")
    )


def _unwrapped(value: Any) -> Any:
    """Return a field's value, out of its wrapper if it has one."""
    if hasattr(value, "value"):
        return value.value
    return value if isinstance(value, bool) else list(value)
