"""The messages of gRPC, made of the descriptions in protos/.

They are in a pool of their own: TensorFlow and other packages register messages of the
same names in protobuf's default pool, which refuses a second one.
"""

from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, message
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from app.errors import BadInput

# `make descriptors` writes it.
_DESCRIPTORS = Path(__file__).with_name("descriptors.binpb")


@cache
def pool() -> Any:
    """Return the pool with all descriptions."""
    files = descriptor_pb2.FileDescriptorSet.FromString(_DESCRIPTORS.read_bytes())
    made = DescriptorPool()
    for file in files.file:
        made.AddSerializedFile(file.SerializeToString())
    return made


@cache
def message_class(name: str) -> Any:
    """Return the class of a message, such as inference.ModelInferRequest."""
    return GetMessageClass(pool().FindMessageTypeByName(name))


def parse(name: str, sent: bytes) -> Any:
    """Return the message in these bytes.

    Raises:
        BadInput: they are no such message.
    """
    try:
        return message_class(name).FromString(sent)
    except message.DecodeError as error:
        kind = name.rpartition(".")[2]
        raise BadInput(f"the message is no {kind}: {error}") from None
