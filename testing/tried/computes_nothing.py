"""SavedModels that can compute no row on a server without a GPU."""

from typing import Any

from testing.tried.case import SAVED_MODEL, tried
from testing.tried.saving import Known, Saving

_FEATURES = _UNITS = 4
_SAVED_FOR_GPUS = "No OpKernel was registered to support Op 'CudnnRNNV3'. It was saved"
_PYTHON_IS_GONE = "Could not find callback with key=pyfunc_"


def _cudnn_lstm(saving: Saving, series: Any) -> Any:
    """Return cuDNN's LSTM over (rows, steps, 4), which has no kernel for CPUs."""
    tf = saving.tf
    rows, steps = tf.shape(series)[0], tf.shape(series)[1]
    state = tf.zeros(tf.stack([1, rows, _UNITS]))
    outputs = tf.raw_ops.CudnnRNNV3(
        input=tf.transpose(series, [1, 0, 2]),
        input_h=state,
        input_c=state,
        params=tf.zeros([4 * _UNITS * (_FEATURES + _UNITS + 2)]),
        sequence_lengths=tf.fill([rows], steps),
        is_training=False,
    )
    return {"last": outputs.output[-1]}


@tried("cuDNN's LSTM without a GPU, any length", SAVED_MODEL, refusal=_SAVED_FOR_GPUS)
def cudnn_lstm(saving: Saving) -> Known:
    spec = saving.tf.TensorSpec([None, None, _FEATURES], saving.tf.float32, "series")
    return saving.functions(
        serving_default=(lambda series: _cudnn_lstm(saving, series), spec)
    )


@tried("cuDNN's LSTM without a GPU, over ids", SAVED_MODEL, refusal=_SAVED_FOR_GPUS)
def cudnn_lstm_of_ids(saving: Saving) -> Known:
    tf = saving.tf

    def last(ids: Any) -> Any:
        return _cudnn_lstm(saving, tf.one_hot(ids % _FEATURES, _FEATURES))

    spec = tf.TensorSpec([None, None], tf.int32, "ids")
    return saving.functions(serving_default=(last, spec))


@tried("cuDNN's LSTM without a GPU, over texts", SAVED_MODEL, refusal=_SAVED_FOR_GPUS)
def cudnn_lstm_of_texts(saving: Saving) -> Known:
    tf = saving.tf

    def last(text: Any) -> Any:
        words = tf.strings.split(text).to_tensor()
        ids = tf.strings.to_hash_bucket_fast(words, _FEATURES)
        return _cudnn_lstm(saving, tf.one_hot(ids, _FEATURES))

    return saving.functions(
        serving_default=(last, tf.TensorSpec([None], tf.string, "text"))
    )


@tried("`tf.py_function` over fixed sizes", SAVED_MODEL, refusal=_PYTHON_IS_GONE)
def py_function(saving: Saving) -> Known:
    return _python(saving, saving.tf.py_function, 3)


@tried("`tf.numpy_function` over any length", SAVED_MODEL, refusal=_PYTHON_IS_GONE)
def numpy_function(saving: Saving) -> Known:
    return _python(saving, saving.tf.numpy_function, None)


def _python(saving: Saving, function: Any, size: int | None) -> Known:
    tf = saving.tf

    def doubled(x: Any) -> Any:
        found = function(lambda rows: rows * 2, [x], tf.float32)
        return {"doubled": tf.ensure_shape(found, [None, size])}

    spec = tf.TensorSpec([None, size], tf.float32, "x")
    return saving.functions(serving_default=(doubled, spec))


@tried(
    "A file that the graph reads by its path",
    SAVED_MODEL,
    refusal="NotFoundError: words.txt; No such file or directory. The graph reads",
)
def reads_a_path(saving: Saving) -> Known:
    tf, path = saving.tf, str(saving.folder / "my words" / "words.txt")

    def scaled(x: Any) -> Any:
        size = tf.strings.length(tf.io.read_file(path))
        return {"scaled": x * tf.cast(size, tf.float32)}

    spec = tf.TensorSpec([None, 3], tf.float32, "x")
    return saving.functions(serving_default=(scaled, spec))
