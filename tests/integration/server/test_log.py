"""The log of a real server."""

from testing.server import serving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW


def test_line_is_written_once_after_a_warning_of_tensorflow(tf, tmp_path):
    """absl, which TensorFlow warns with, adds a handler to the root logger."""

    class Doubles(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, "x")])
        def double(self, x):
            compute = tf.custom_gradient(lambda x: (x * 2, lambda slope: slope * 2))
            return {"y": compute(x)}

    module = Doubles()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(
        module, str(tmp_path / "m" / "1"), signatures=module.double, options=options
    )
    with serving(model_dir=str(tmp_path)) as server:
        log = server.log.read_text()
    assert "WARNING:absl:" in log
    assert log.count("model m version 1 is ready") == 1
