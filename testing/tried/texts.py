"""Text models that pad to the longest text of a batch, and such as do not show it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from testing.tried.case import EXPORT, KERAS, SAVED_MODEL, tried
from testing.tried.saving import Known, Saving

_WORDS = ("great", "tea", "bad", "milk", "not", "at", "all", "hot", "cold", "fine")
_ADVICE = "give TextVectorization an output_sequence_length"
_MOST_WORDS = 40
# Layers between the ids and the scores, from Keras's layers.
Middle = Callable[[Any, Any], Any]


def texts_of_all_lengths() -> np.ndarray:
    """Return a text of each number of words from 1 to 40, some of them unknown."""
    random = np.random.default_rng(0)
    words = [*_WORDS, "unseen", "words"]
    texts = [" ".join(random.choice(words, size)) for size in range(1, _MOST_WORDS + 1)]
    return np.array(texts, object)


def _vectorized(saving: Saving, length: int | None = None) -> tuple[Any, Any]:
    """Return the input of texts, and their ids."""
    ids = saving.keras.layers.TextVectorization(
        vocabulary=list(_WORDS), output_sequence_length=length, name="ids"
    )
    text = saving.keras.Input((), dtype="string", name="text")
    return text, ids(text)


def _model(
    saving: Saving, middle: Middle, *, mask_zero: bool = False, length: Any = None
) -> Any:
    layers = saving.keras.layers
    text, ids = _vectorized(saving, length)
    signal = layers.Embedding(len(_WORDS) + 2, 16, mask_zero=mask_zero)(ids)
    score = layers.Dense(1, activation="sigmoid")(middle(layers, signal))
    return saving.keras.Model(text, score)


def _saved(saving: Saving, middle: Middle, **kinds: Any) -> Known:
    model = _model(saving, middle, **kinds)
    saving.save(model)
    return saving.alone(model, texts_of_all_lengths())


def _mean(layers: Any, signal: Any) -> Any:
    return layers.GlobalAveragePooling1D()(signal)


def _bilstm(layers: Any, signal: Any) -> Any:
    return layers.Bidirectional(layers.LSTM(8))(signal)


def _attention(layers: Any, signal: Any) -> Any:
    return _mean(layers, layers.MultiHeadAttention(2, 8)(signal, signal))


def _convolution(layers: Any, signal: Any) -> Any:
    return layers.Conv1D(8, 3, padding="same", activation="relu")(signal)


@tried("Texts of any length: mean of embeddings", KERAS, unbatched=_ADVICE)
def texts_mean(saving: Saving) -> Known:
    return _saved(saving, _mean)


@tried("Texts of any length: mean of embeddings", EXPORT, unbatched=_ADVICE)
def texts_mean_exported(saving: Saving) -> Known:
    model = _model(saving, _mean)
    saving.export(model)
    return saving.alone(model, texts_of_all_lengths())


@tried(
    "Texts of any length: mean of embeddings, trained for 20 epochs",
    KERAS,
    unbatched=_ADVICE,
)
def texts_mean_trained(saving: Saving) -> Known:
    model = _model(saving, _mean)
    texts = texts_of_all_lengths()
    labels = np.array([["great" in text or "fine" in text] for text in texts], "f4")
    model.compile("adam", "binary_crossentropy")
    model.fit(saving.tf.constant(texts), labels, epochs=20, verbose=0)
    saving.save(model)
    return saving.alone(model, texts)


@tried("Texts of any length: bidirectional LSTM", KERAS, unbatched=_ADVICE)
def texts_bilstm(saving: Saving) -> Known:
    return _saved(saving, _bilstm)


@tried("Texts of any length: Conv1D and mean", KERAS, unbatched=_ADVICE)
def texts_conv1d(saving: Saving) -> Known:
    return _saved(saving, lambda *given: _mean(given[0], _convolution(*given)))


@tried("Texts of any length: Conv1D and maximum", KERAS, unbatched=_ADVICE)
def texts_conv1d_max(saving: Saving) -> Known:
    return _saved(
        saving,
        lambda *given: given[0].GlobalMaxPooling1D()(_convolution(*given)),
    )


@tried("Texts of any length: attention", KERAS, unbatched=_ADVICE)
def texts_attention(saving: Saving) -> Known:
    return _saved(saving, _attention)


@tried("Texts of any length: their ids", KERAS, unbatched=_ADVICE)
def texts_ids(saving: Saving) -> Known:
    model = saving.keras.Model(*_vectorized(saving))
    saving.save(model)
    return saving.alone(model, texts_of_all_lengths())


@tried("Texts of any length: `tf.strings.split`", SAVED_MODEL, unbatched=_ADVICE)
def texts_split(saving: Saving) -> Known:
    tf = saving.tf

    def mean_length(text: Any) -> dict[str, Any]:
        sizes = tf.strings.length(tf.strings.split(text).to_tensor())
        return {"length": tf.reduce_mean(tf.cast(sizes, tf.float32), axis=1)}

    spec = tf.TensorSpec([None], tf.string, "text")
    saving.functions(serving_default=(mean_length, spec))
    texts = texts_of_all_lengths()
    known = Known((), ())
    for row in range(len(texts)):
        known = known.and_rows(saving.signature_answers(texts[row : row + 1]))
    return known


@tried("Texts of any length, masked: mean of embeddings", KERAS)
def texts_mean_masked(saving: Saving) -> Known:
    return _saved(saving, _mean, mask_zero=True)


@tried("Texts of any length, masked: bidirectional LSTM", KERAS)
def texts_bilstm_masked(saving: Saving) -> Known:
    return _saved(saving, _bilstm, mask_zero=True)


@tried("Texts of any length, masked: attention", KERAS)
def texts_attention_masked(saving: Saving) -> Known:
    return _saved(saving, _attention, mask_zero=True)


@tried("Texts of any length, masked, in mixed_float16", KERAS, tolerance=1e-2)
def texts_masked_float16(saving: Saving) -> Known:
    saving.keras.config.set_dtype_policy("mixed_float16")
    try:
        return _saved(saving, _attention, mask_zero=True)
    finally:
        saving.keras.config.set_dtype_policy("float32")


@tried("Texts cut to 20 words: Conv1D and maximum", KERAS)
def texts_conv1d_cut(saving: Saving) -> Known:
    return _saved(
        saving,
        lambda *given: given[0].GlobalMaxPooling1D()(_convolution(*given)),
        length=20,
    )


@tried("Windows of at least 81 steps: cropping", KERAS)
def cropped(saving: Saving) -> Known:
    layers = saving.keras.layers
    series = saving.keras.Input((None, 4))
    signal = layers.Conv1D(8, 3, padding="same", activation="relu")(series)
    scores = layers.Dense(3, activation="softmax")(layers.Cropping1D(40)(signal))
    model = saving.keras.Model(series, scores)
    return saving.save(model, np.random.default_rng(0).random((3, 100, 4), np.float32))


@tried("Windows of at least 193 steps: valid convolutions and mean", KERAS)
def valid_convolutions(saving: Saving) -> Known:
    layers = saving.keras.layers
    series = signal = saving.keras.Input((None, 4))
    # No layer leaves exactly no step of the lengths that the check of rows tries, such
    # as 32: there the folded graph answers with what is in memory, and Keras refuses.
    for _ in range(8):
        signal = layers.Conv1D(4, 9, dilation_rate=3)(signal)
    model = saving.keras.Model(series, layers.GlobalAveragePooling1D()(signal))
    rows = np.random.default_rng(0).random((3, 200, 4), np.float32)
    known = saving.save(model, rows)
    short = "Computed output size would be negative"
    return replace(known, refused=rows[:1, :9].tolist(), error=short)
