"""TensorFlow Serving's gRPC stubs, as they are shipped, against a real server."""

import grpc
import numpy as np
import pytest

from testing.clients import in_parallel
from tests.support.grpc_calls import echo_inputs, failure, serving_grpc, write_echo

pytestmark = [
    pytest.mark.keras,
    # TensorFlow and Keras use deprecated functions.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Protobuf gencode version:UserWarning"),
]
TOML = "[labels]\nstable = 1\ncanary = 2\n"


@pytest.fixture(scope="module")
def serving_apis():
    """Return TensorFlow Serving's modules, whose import loads TensorFlow."""
    # ruff: noqa: PLC0415
    from tensorflow_serving.apis import (
        classification_pb2,
        get_model_metadata_pb2,
        get_model_status_pb2,
        inference_pb2,
        model_management_pb2,
        model_service_pb2_grpc,
        predict_pb2,
        prediction_service_pb2_grpc,
        regression_pb2,
    )

    class Apis:
        predict = predict_pb2
        metadata = get_model_metadata_pb2
        status = get_model_status_pb2
        classification = classification_pb2
        regression = regression_pb2
        inference = inference_pb2
        management = model_management_pb2
        models = model_service_pb2_grpc.ModelServiceStub
        predictions = prediction_service_pb2_grpc.PredictionServiceStub

    return Apis


def _write_double(tf, folder):
    spec = tf.TensorSpec([None, 3], tf.float32, name="x")
    double = tf.function(lambda x: {"y": 2 * x, "z": x}, input_signature=[spec])
    traced = double.get_concrete_function()
    tf.saved_model.save(tf.Module(), str(folder / "1"), signatures=traced)


@pytest.fixture(scope="module")
def address(tf, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    for number in (1, 2):
        write_echo(tf, models / "echo", number)
    (models / "echo" / "basket.toml").write_text(TOML)
    _write_double(tf, models / "double")
    settings = {"model_dir": str(models), "default_model": "double"}
    with serving_grpc("--threads=4", **settings) as (_, address):
        yield address


@pytest.fixture(scope="module")
def channel(address):
    with grpc.insecure_channel(address) as channel:
        yield channel


@pytest.fixture(scope="module")
def stub(serving_apis, channel):
    return serving_apis.predictions(channel)


def _request(apis, tf, name="double", *, as_content=True, **arrays):
    request = apis.predict.PredictRequest()
    request.model_spec.name = name
    for key, array in arrays.items():
        proto = tf.make_tensor_proto(array)
        if not as_content:
            proto = _in_typed_field(tf, array)
        request.inputs[key].CopyFrom(proto)
    return request


FIELDS = {
    **{"float32": "float_val", "float64": "double_val", "float16": "half_val"},
    **dict.fromkeys(("int8", "int16", "int32", "uint8", "uint16"), "int_val"),
    **{"int64": "int64_val", "uint32": "uint32_val", "uint64": "uint64_val"},
    **{"bool": "bool_val", "object": "string_val"},
}


def _in_typed_field(tf, array):
    """Return a TensorProto whose values are in the field of its dtype."""
    proto = tf.make_tensor_proto(array)
    for field in ("tensor_content", *FIELDS.values()):
        proto.ClearField(field)
    bits = array.view(np.uint16) if array.dtype == np.float16 else array
    getattr(proto, FIELDS[str(array.dtype)]).extend(bits.ravel().tolist())
    return proto


@pytest.mark.parametrize("as_content", [True, False])
def test_every_dtype_comes_back_unchanged(serving_apis, tf, stub, as_content):
    """Inputs as bytes and as typed values come back, each in its own dtype."""
    arrays = echo_inputs()
    request = _request(serving_apis, tf, "echo", as_content=as_content, **arrays)
    outputs = stub.Predict(request).outputs
    assert len(outputs) == len(arrays) + 1
    for name, array in arrays.items():
        found = tf.make_ndarray(outputs[f"out_{name}"])
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_outputs_stand_in_the_field_of_their_dtype(serving_apis, tf, stub):
    """A client that reads float_val finds the values there, as many tutorials do."""
    request = _request(serving_apis, tf, x=np.array([[1, 2, 3]], np.float32))
    response = stub.Predict(request)
    assert list(response.outputs["y"].float_val) == [2, 4, 6]
    spec = response.model_spec
    assert (spec.name, spec.version.value) == ("double", 1)
    assert spec.signature_name == "serving_default"


def test_output_filter_selects_outputs(serving_apis, tf, stub):
    """Only the outputs in output_filter come back."""
    request = _request(serving_apis, tf, x=np.ones((2, 3), np.float32))
    request.output_filter.append("z")
    assert list(stub.Predict(request).outputs) == ["z"]


@pytest.mark.parametrize(
    ("choice", "value", "version"),
    [("version", 1, 1), ("version", 2, 2), ("label", "stable", 1), (None, None, 2)],
)
def test_versions_and_labels_are_selected(
    serving_apis, tf, stub, choice, value, version
):
    """A request is served by the version of its number or label, else the newest."""
    request = _request(serving_apis, tf, "echo", **echo_inputs())
    if choice == "version":
        request.model_spec.version.value = value
    elif choice == "label":
        request.model_spec.version_label = value
    response = stub.Predict(request)
    assert response.outputs["version"].int_val[0] == version
    assert response.model_spec.version.value == version


def _spec(**fields):
    def change(request):
        for name, value in fields.items():
            setattr(request.model_spec, name, value)

    return change


def _set_version(request):
    request.model_spec.version.value = 9


def _rename(request):
    request.inputs["w"].CopyFrom(request.inputs.pop("x"))


BAD = {
    "unknown model": (_spec(name="nobody"), "NOT_FOUND", "Latest(nobody)"),
    "unknown version": (_set_version, "NOT_FOUND", "Specific(double, 9)"),
    "unknown label": (
        _spec(version_label="old"),
        "INVALID_ARGUMENT",
        "old",
    ),
    "no name": (_spec(name=""), "INVALID_ARGUMENT", "name of a model"),
    "no spec": (
        lambda request: request.ClearField("model_spec"),
        "INVALID_ARGUMENT",
        "Missing ModelSpec",
    ),
    "unknown signature": (
        _spec(signature_name="other"),
        "INVALID_ARGUMENT",
        '"other" not found in signature def',
    ),
    "unknown input": (_rename, "INVALID_ARGUMENT", "no input 'w', it has: x"),
    "no input": (
        lambda request: request.inputs.clear(),
        "INVALID_ARGUMENT",
        "input 'x' is missing",
    ),
    "unknown output": (
        lambda request: request.output_filter.append("q"),
        "INVALID_ARGUMENT",
        "no output 'q', it has: y, z",
    ),
    "output twice": (
        lambda request: request.output_filter.extend("zz"),
        "INVALID_ARGUMENT",
        "output_filter: 'z' is named twice",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_request_gets_a_code_and_a_text(serving_apis, tf, stub, case):
    """An error names what is wrong, with the code that fits."""
    change, code, text = BAD[case]
    request = _request(serving_apis, tf, x=np.ones((1, 3), np.float32))
    if case == "unknown input":
        request.inputs["w"].CopyFrom(request.inputs["x"])
        del request.inputs["x"]
    else:
        change(request)
    given_code, given_text = failure(stub.Predict, request)
    assert given_code == code
    assert text in given_text


@pytest.mark.parametrize(
    ("array", "code", "text"),
    [
        (
            np.ones((1, 4), np.float32),
            "INVALID_ARGUMENT",
            "expected shape [-1, 3], given [1, 4]",
        ),
        (
            np.ones((1, 3), np.int32),
            "INVALID_ARGUMENT",
            "expected DT_FLOAT, given DT_INT32",
        ),
        (
            np.ones((2000, 3), np.float32),
            "RESOURCE_EXHAUSTED",
            "2000 rows in one request",
        ),
    ],
)
def test_wrong_tensor_is_refused(serving_apis, tf, stub, array, code, text):
    """The text has what is expected and what is given."""
    given_code, given = failure(stub.Predict, _request(serving_apis, tf, x=array))
    assert given_code == code
    assert text in given


def test_metadata_has_the_signatures(serving_apis, stub):
    """GetModelMetadata answers a SignatureDefMap, as TensorFlow Serving does."""
    request = serving_apis.metadata.GetModelMetadataRequest()
    request.model_spec.name = "double"
    code, text = failure(stub.GetModelMetadata, request)
    assert (code, "signature_def" in text) == ("INVALID_ARGUMENT", True)
    request.metadata_field.append("signature_def")
    response = stub.GetModelMetadata(request)
    assert response.model_spec.version.value == 1
    found = serving_apis.metadata.SignatureDefMap()
    assert response.metadata["signature_def"].Unpack(found)
    signature = found.signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    assert [dim.size for dim in signature.inputs["x"].tensor_shape.dim] == [-1, 3]
    request.model_spec.name = "nobody"
    assert failure(stub.GetModelMetadata, request)[0] == "NOT_FOUND"


def test_status_has_the_versions(serving_apis, channel):
    """GetModelStatus answers the state of each version, the highest first."""
    stub = serving_apis.models(channel)
    request = serving_apis.status.GetModelStatusRequest()
    request.model_spec.name = "echo"
    states = stub.GetModelStatus(request).model_version_status
    available = serving_apis.status.ModelVersionStatus.State.AVAILABLE
    assert [(each.version, each.state) for each in states] == [
        (2, available),
        (1, available),
    ]
    request.model_spec.version.value = 7
    assert failure(stub.GetModelStatus, request)[0] == "NOT_FOUND"


def test_methods_that_are_not_built_say_so(serving_apis, stub, channel):
    """Methods for examples and a reload are UNIMPLEMENTED, with a text."""
    for call, request in (
        (stub.Classify, serving_apis.classification.ClassificationRequest()),
        (stub.Regress, serving_apis.regression.RegressionRequest()),
        (stub.MultiInference, serving_apis.inference.MultiInferenceRequest()),
    ):
        assert failure(call, request) == (
            "UNIMPLEMENTED",
            "models here have signatures of tensorflow/serving/predict alone: use "
            "Predict",
        )
    models = serving_apis.models(channel)
    config = serving_apis.management.ReloadConfigRequest()
    code, text = failure(models.HandleReloadConfigRequest, config)
    assert (code, "model folder" in text) == ("UNIMPLEMENTED", True)


def test_64_clients_with_one_bad_request(serving_apis, tf, address):
    """63 clients get their own rows, and one gets the error of its own request."""
    failures = []

    def work(place):
        width = 4 if place == 13 else 3
        rows = np.full((1, width), place, np.float32)
        request = _request(serving_apis, tf, x=rows)
        with grpc.insecure_channel(address) as channel:
            stub = serving_apis.predictions(channel)
            if place == 13:
                failures.append(failure(stub.Predict, request)[0])
            else:
                assert (
                    list(stub.Predict(request).outputs["y"].float_val)
                    == [2.0 * place] * 3
                )

    in_parallel(work, 64)
    assert failures == ["INVALID_ARGUMENT"]
