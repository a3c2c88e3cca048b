"""Versions that can compute no row: refused, while the version before serves on."""

from testing.server import serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
UNSUPPORTED = (
    "version 2: fails on a batch of 1 rows of zeros (UnimplementedError: The Conv2D op "
    "currently only supports the NHWC tensor format on the CPU. The op was given the "
    "format: NCHW. The format channels_first is for GPUs, or for "
    "TF_ENABLE_ONEDNN_OPTS=1)"
)


def _save(tf, folder, size, data_format):
    """Write a convolution over pictures of this size, or of any."""
    module = tf.Module()
    module.kernel = tf.Variable(tf.ones([1, 1, 3, 2]))

    def convolve(x):
        found = tf.nn.conv2d(x, module.kernel, 1, "SAME", data_format=data_format)
        return {"sum": tf.reduce_sum(found, axis=[1, 2, 3])}

    channels_first = data_format == "NCHW"
    shape = [None, 3, size, size] if channels_first else [None, size, size, 3]
    module.convolve = tf.function(
        convolve, input_signature=[tf.TensorSpec(shape, tf.float32, "x")]
    )
    tf.saved_model.save(module, str(folder), signatures=module.convolve)


def test_version_in_an_unsupported_format_leaves_the_one_before_serving(tf, tmp_path):
    """Convolutions of channels_first have no kernel on a CPU without oneDNN."""
    models, new = tmp_path / "models", tmp_path / "new"
    for name, size in (("fixed", 4), ("free", None)):
        _save(tf, models / name / "1", size, "NHWC")
        _save(tf, new / name, size, "NCHW")
    environ = {"TF_ENABLE_ONEDNN_OPTS": "0"}
    with serving("--threads=4", model_dir=str(models), environ=environ) as server:

        def problems():
            return server.request("GET", "/readyz").json().get("problems", {})

        for name in ("fixed", "free"):
            (new / name).rename(models / name / "2")
        server.wait_until(lambda: len(problems()) == 2, 60)
        assert problems()["fixed"] == [UNSUPPORTED]
        assert problems()["free"] == [
            UNSUPPORTED.replace(
                "fails on a batch of 1 rows of zeros (",
                "serving_default fails on all rows: ",
            ).removesuffix(")")
        ]
        body = b'{"instances": [[[[1, 2, 3]]]]}'
        reply = server.request("POST", "/v1/models/free:predict", body)
        assert reply.json() == {"predictions": [12.0]}
        assert reply.headers["X-Model-Version"] == "1"
