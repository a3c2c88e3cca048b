"""Text, time series and attention."""

from dataclasses import replace

import numpy as np

from testing.tried.case import EXPORT, KERAS, tried
from testing.tried.saving import Known, Saving, integers, numbers

TEXTS = np.array(["good tea", "bad bad milk", "unseen words here", ""], object)


def _of_lengths(saving: Saving, save: object, model: object, *lengths: int) -> Known:
    """Save a model, and return rows of ids of several lengths."""
    first, *others = (integers(40, 3, length, seed=length) for length in lengths)
    known = save(model, first)
    for rows in others:
        known = known.and_rows(saving.predicted(model, rows))
    return known


@tried("LSTM over ids with a mask, any length", KERAS)
def lstm_with_mask(saving: Saving) -> Known:
    layers = saving.keras.layers
    ids = saving.keras.Input((None,), dtype="int32")
    signal = layers.LSTM(8)(layers.Embedding(40, 6, mask_zero=True)(ids))
    model = saving.keras.Model(ids, layers.Dense(1, activation="sigmoid")(signal))
    return _of_lengths(saving, saving.save, model, 12, 5, 30)


@tried("Bidirectional GRU", KERAS)
def bidirectional_gru(saving: Saving) -> Known:
    layers = saving.keras.layers
    ids = saving.keras.Input((10,), dtype="int32")
    signal = layers.Embedding(40, 6)(ids)
    signal = layers.Bidirectional(layers.GRU(5, return_sequences=True))(signal)
    model = saving.keras.Model(ids, layers.GlobalMaxPooling1D()(signal))
    return saving.save(model, integers(40, 4, 10))


def _text_model(saving: Saving) -> object:
    layers = saving.keras.layers
    words = layers.TextVectorization(output_sequence_length=6)
    words.adapt(TEXTS.tolist())
    text = saving.keras.Input((), dtype="string", name="text")
    signal = layers.Embedding(20, 4, mask_zero=True)(words(text))
    signal = layers.GlobalAveragePooling1D()(signal)
    return saving.keras.Model(text, layers.Dense(2, activation="softmax")(signal))


@tried("Text to scores: TextVectorization", KERAS)
def text_vectorization(saving: Saving) -> Known:
    return saving.save(_text_model(saving), TEXTS)


@tried("Text to scores: TextVectorization", EXPORT)
def text_vectorization_exported(saving: Saving) -> Known:
    return saving.export(_text_model(saving), TEXTS)


@tried(
    "TextVectorization with ragged output",
    KERAS,
    refusal="output words is a ragged tensor, and Basket serves dense ones",
)
def ragged_output(saving: Saving) -> Known:
    words = saving.keras.layers.TextVectorization(
        vocabulary=["tea", "milk"], ragged=True, name="words"
    )
    text = saving.keras.Input((), dtype="string")
    return saving.save(saving.keras.Model(text, words(text)))


@tried("Conv1D over a time series", KERAS)
def conv1d(saving: Saving) -> Known:
    layers = saving.keras.layers
    series = saving.keras.Input((24, 3))
    signal = layers.Conv1D(8, 3, padding="causal", activation="relu")(series)
    signal = layers.Conv1D(8, 3, strides=2, dilation_rate=1)(signal)
    model = saving.keras.Model(series, layers.Dense(1)(layers.Flatten()(signal)))
    return saving.save(model, numbers(4, 24, 3))


def _transformer(saving: Saving) -> object:
    layers = saving.keras.layers
    ids = saving.keras.Input((None,), dtype="int32", name="ids")
    signal = layers.Embedding(40, 16)(ids)
    attention = layers.MultiHeadAttention(2, 8)(signal, signal, use_causal_mask=True)
    signal = layers.LayerNormalization()(layers.Add()([signal, attention]))
    inner = layers.Dense(16)(layers.Dense(32, activation="gelu")(signal))
    signal = layers.LayerNormalization()(layers.Add()([signal, inner]))
    return saving.keras.Model(ids, layers.Dense(40)(signal))


@tried("Transformer block, any length", KERAS)
def transformer(saving: Saving) -> Known:
    return _of_lengths(saving, saving.save, _transformer(saving), 7, 16)


@tried("Transformer block, any length", EXPORT)
def transformer_exported(saving: Saving) -> Known:
    return _of_lengths(saving, saving.export, _transformer(saving), 7, 16)


@tried(
    "LSTM that keeps its state between calls (`stateful=True`)",
    KERAS,
    refusal="has stateful=True, so a request's answer depends on those before it",
)
def stateful_lstm(saving: Saving) -> Known:
    layers = saving.keras.layers
    series = saving.keras.Input(batch_shape=(1, 5, 2))
    state = layers.LSTM(3, stateful=True, name="memory")(series)
    return saving.save(saving.keras.Model(series, state))


@tried("Embedding, and 400 for an id that it does not have", KERAS)
def id_out_of_range(saving: Saving) -> Known:
    layers = saving.keras.layers
    ids = saving.keras.Input((3,), dtype="int32")
    model = saving.keras.Model(ids, layers.Flatten()(layers.Embedding(10, 2)(ids)))
    known = saving.save(model, integers(10, 4, 3))
    return replace(known, refused=[[1, 99, 2]], error="99 is not in [0, 10)")


@tried("StringLookup without an unknown word, and 400 for one", KERAS)
def unknown_word(saving: Saving) -> Known:
    lookup = saving.keras.layers.StringLookup(
        vocabulary=["tea", "milk"], num_oov_indices=0
    )
    word = saving.keras.Input((1,), dtype="string")
    model = saving.keras.Model(word, lookup(word))
    known = saving.save(model, np.array([["milk"], ["tea"]], object))
    return replace(known, refused=[["cocoa"]], error="cocoa")


def _time_distributed(saving: Saving, steps: int | None) -> object:
    layers = saving.keras.layers
    series = saving.keras.Input((steps, 3))
    each = layers.TimeDistributed(layers.Dense(4), name="each")
    return saving.keras.Model(series, each(series))


@tried("TimeDistributed over six steps", KERAS)
def time_distributed(saving: Saving) -> Known:
    return saving.save(_time_distributed(saving, 6), numbers(3, 6, 3))


@tried(
    "TimeDistributed over any number of steps",
    EXPORT,
    refusal="TimeDistributed over a free number of steps: give keras.Input a fixed one",
)
def time_distributed_free_exported(saving: Saving) -> Known:
    return saving.export(_time_distributed(saving, None))


@tried("TimeDistributed over any number of steps", KERAS, refusal="a fixed one")
def time_distributed_free(saving: Saving) -> Known:
    return saving.save(_time_distributed(saving, None))
