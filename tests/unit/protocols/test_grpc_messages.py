"""The descriptions of gRPC's messages are those of the packages that ship them."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from app.codec import tensor_proto
from app.errors import BadInput
from app.protocols import grpc_messages as messages

ROOT = Path(__file__).parents[3]
DESCRIPTORS = ROOT / "app" / "protocols" / "descriptors.binpb"
FILES = descriptor_pb2.FileDescriptorSet.FromString(DESCRIPTORS.read_bytes()).file
# Those of KServe's messages, which are empty in Triton.
KSERVE = {
    "inference.RepositoryModelLoadResponse": {"model_name", "isLoaded"},
    "inference.RepositoryModelUnloadResponse": {"model_name", "isUnloaded"},
}
# Writes the descriptions in the modules that its arguments name.
PROGRAM = """
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from google.protobuf import descriptor_pb2

# Not TensorFlow itself, which takes seconds to load.
tensorflow = ModuleType("tensorflow")
tensorflow.__path__ = find_spec("tensorflow").submodule_search_locations
sys.modules["tensorflow"] = tensorflow
found = {}

def add(file):
    for each in file.dependencies:
        add(each)
    if file.name not in found:
        found[file.name] = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(found[file.name])

for name in sys.argv[1:]:
    add(import_module(name).DESCRIPTOR)
files = descriptor_pb2.FileDescriptorSet(file=found.values())
sys.stdout.buffer.write(files.SerializeToString())
"""
MODULES = (
    "tritonclient.grpc.service_pb2",
    "tensorflow_serving.apis.get_model_metadata_pb2",
    "tensorflow_serving.apis.prediction_service_pb2",
    "tensorflow_serving.apis.model_service_pb2",
)
# The kinds of numbers that are on the wire as they are in an array.
FIXED = (
    *(FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE),
    FieldDescriptor.TYPE_BOOL,
)


def below(parent):
    """Return the messages in a file's or a message's description, at any depth."""
    if hasattr(parent, "message_types_by_name"):
        inner = parent.message_types_by_name.values()
    else:
        inner = parent.nested_types
    return [one for each in inner for one in (each, *below(each))]


def enums_of(file):
    """Return the enums of a file and of its messages."""
    inner = [enum for message in below(file) for enum in message.enum_types]
    return [*file.enum_types_by_name.values(), *inner]


OURS = [
    messages.pool().FindFileByName(file.name)
    for file in FILES
    if file.package not in ("basket", "google.protobuf")
]
SERVICES = [each for file in OURS for each in file.services_by_name.values()]


def named(descriptors):
    """Return a parameter for each description, with its name as id."""
    return [pytest.param(each, id=each.full_name) for each in descriptors]


def fields_of(message):
    """Return the number, the type, and whether it is repeated, of each field."""
    return {
        field.name: (
            field.number,
            field.type,
            field.is_repeated,
            getattr(field.message_type or field.enum_type, "full_name", None),
        )
        for field in message.fields
    }


@pytest.fixture(name="shipped", scope="module")
def _shipped():
    """The pool of the descriptions that Triton's and TensorFlow's packages ship."""
    command = [sys.executable, "-c", PROGRAM, *MODULES]
    ran = subprocess.run(command, check=True, capture_output=True)
    pool = DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(ran.stdout).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def test_descriptors_are_those_of_the_protos(tmp_path):
    """`make descriptors` was run after the last change of a description."""
    made = tmp_path / "descriptors.binpb"
    protos = ROOT / "app" / "protocols" / "protos"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I.", "--include_imports"]
    names = sorted(file.name for file in protos.glob("*.proto"))
    command += [f"--descriptor_set_out={made}", *names]
    subprocess.run(command, check=True, cwd=protos)
    is_same = made.read_bytes() == DESCRIPTORS.read_bytes()
    assert is_same, "run make descriptors"


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_fields_are_those_of_the_shipped_message(shipped, file):
    """Each field has the number and the type of the field of its name."""
    for ours in below(file):
        theirs = fields_of(shipped.FindMessageTypeByName(ours.full_name))
        added = KSERVE.get(ours.full_name, set())
        assert not added & theirs.keys(), ours.full_name
        for name, field in fields_of(ours).items():
            is_same = name in added or field == theirs.get(name)
            assert is_same, (ours.full_name, name)


@pytest.mark.parametrize(
    "ours", named(each for file in OURS for each in enums_of(file))
)
def test_numbers_are_those_of_the_shipped_enum(shipped, ours):
    """Each name stands for the same number."""
    theirs = shipped.FindEnumTypeByName(ours.full_name).values_by_name
    assert ours.values
    for value in ours.values:
        assert value.number == theirs[value.name].number, value.name


@pytest.mark.parametrize("ours", named(SERVICES))
def test_methods_are_those_of_the_shipped_service(shipped, ours):
    """Each method takes and returns the same messages, one by one or in a stream."""
    theirs = shipped.FindServiceByName(ours.full_name).methods_by_name
    for method in ours.methods:
        for each in ("input_type", "output_type"):
            wanted = getattr(theirs[method.name], each).full_name
            assert getattr(method, each).full_name == wanted
        assert method.client_streaming == theirs[method.name].client_streaming
        assert method.server_streaming == theirs[method.name].server_streaming


@pytest.mark.parametrize(
    ("packed", "plain"),
    [
        ("basket.PackedTensor", "tensorflow.TensorProto"),
        ("basket.PackedPredictResponse", "tensorflow.serving.PredictResponse"),
    ],
)
def test_packed_fields_are_those_of_tensorflow(packed, plain):
    """Only repeated numbers of a fixed size are bytes, and tensors are packed."""
    theirs = messages.message_class(plain).DESCRIPTOR.fields_by_name
    for field in messages.message_class(packed).DESCRIPTOR.fields:
        other = theirs[field.name]
        assert field.number == other.number
        if field.type == FieldDescriptor.TYPE_BYTES and not field.is_repeated:
            assert other.is_repeated
            assert other.type in FIXED
        else:
            assert field.type == other.type
            assert field.is_repeated == other.is_repeated


# Values that take more than a byte in a varint, or that are negative.
@pytest.mark.parametrize(
    ("dtype", "number", "field", "values", "stored"),
    [
        ("f4", 1, "float_val", [1.5, -2, 0], [1.5, -2, 0]),
        ("f8", 2, "double_val", [0.1, -2, 0], [0.1, -2, 0]),
        ("i4", 3, "int_val", [300, -2, 0], [300, -2, 0]),
        ("u1", 4, "int_val", [255, 2, 0], [255, 2, 0]),
        ("i2", 5, "int_val", [300, -2, 0], [300, -2, 0]),
        ("i1", 6, "int_val", [100, -2, 0], [100, -2, 0]),
        ("O", 7, "string_val", [b"a", b"", b"\xff"], [b"a", b"", b"\xff"]),
        ("i8", 9, "int64_val", [1 << 62, -2, 0], [1 << 62, -2, 0]),
        ("?", 10, "bool_val", [True, False], [True, False]),
        ("u2", 17, "int_val", [65535, 2, 0], [65535, 2, 0]),
        ("f2", 19, "half_val", [1, -2, 0], [0x3C00, 0xC000, 0]),
        ("u4", 22, "uint32_val", [1 << 31, 2, 0], [1 << 31, 2, 0]),
        ("u8", 23, "uint64_val", [1 << 63, 2, 0], [1 << 63, 2, 0]),
    ],
)
def test_packed_response_has_the_bytes_of_a_predict_response(
    dtype, number, field, values, stored
):
    """What is written is what TensorFlow's messages with typed fields would be."""
    packed = messages.message_class("basket.PackedPredictResponse")()
    tensor_proto.write(packed.outputs["y"], np.array(values, dtype))
    shape = {"dim": [{"size": len(values)}]}
    tensor = {"dtype": number, "tensor_shape": shape, field: stored}
    response = messages.message_class("tensorflow.serving.PredictResponse")()
    made = messages.message_class("tensorflow.TensorProto")(**tensor)
    response.outputs["y"].CopyFrom(made)
    for each in (packed, response):
        each.model_spec.name = "m"
        each.model_spec.version.value = 2
    assert packed.SerializeToString() == response.SerializeToString()


def test_messages_are_in_a_pool_of_their_own():
    """TensorFlow's own descriptions can be in the default pool."""
    pool = messages.message_class("tensorflow.TensorProto").DESCRIPTOR.file.pool
    assert pool is messages.pool()
    assert pool is not descriptor_pool.Default()


INFER = messages.message_class("inference.ModelInferRequest")(
    model_name="m", inputs=[{"name": "x", "shape": [1]}]
).SerializeToString()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(INFER[:-1], id="cut"),
        pytest.param(INFER + b"\xff", id="more"),
        pytest.param(b"\x0a\x01\xff", id="name that is not UTF-8"),
        pytest.param(b"\x0a\xff\xff\xff\xff\x07m", id="length of 2 GiB"),
        pytest.param(b'{"inputs": []}', id="JSON"),
        pytest.param(b"\xff" * 11, id="long varint"),
        pytest.param(b"\x04", id="end of a group"),
        pytest.param(b"\x0b" * 9000, id="deep groups"),
    ],
)
def test_malformed_message_is_refused(sent):
    """The error names the message that was expected."""
    with pytest.raises(
        BadInput, match=r"^the message is no ModelInferRequest: "
    ) as got:
        messages.parse("inference.ModelInferRequest", sent)
    assert len(str(got.value)) < 200


@pytest.mark.parametrize("sent", [b"", INFER, INFER + b"\xf8\x07\x01"])
def test_message_is_parsed(sent):
    """No bytes are an empty message, and unknown fields are left alone."""
    message = messages.parse("inference.ModelInferRequest", sent)
    assert message.model_name == ("m" if sent else "")
