"""Warm-up: its rows, its errors, and which dependence on the batch it refuses."""

import re

import numpy as np
import pytest

from app.batching.model_log import ModelLog
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.errors import (
    Late,
    ModelLoadError,
    NotYetLoadable,
    OutOfDeviceMemory,
    RefusedInput,
    Unavailable,
)
from app.repository.loading.warm_up import warm_up
from tests.support.engines import Computes, Echo, Fails, OneValue, OutputMissing

LOG = ModelLog("m", 1)
FLOAT32, STRING = np.dtype(np.float32), np.dtype(object)
NUMBER = TensorSpec("input", FLOAT32, (1,))
OUTPUT = TensorSpec("output", FLOAT32, (1,))
SIZES, SMALL = (1, 64), 4


def _fails(error, *sizes, spec=NUMBER):
    """Return an engine that raises for batches of these sizes."""
    engine = Fails(error, *sizes)
    engine.signatures = {DEFAULT_SIGNATURE: Signature((spec,), (OUTPUT,))}
    return engine


def test_warm_up_returns_the_smallest_batch_of_each_working_signature():
    """A signature that fails on blank rows is left out."""
    good, bad = TensorSpec("good", FLOAT32, (1,)), TensorSpec("bad", STRING, (1,))

    class OneOfTwo(Echo):
        def run(self, batch, signature_name=DEFAULT_SIGNATURE):
            if "bad" in batch:
                raise RefusedInput("no strings")
            return batch

    engine = OneOfTwo()
    engine.signatures = {
        name: Signature((spec,), (spec,)) for name, spec in (("a", good), ("b", bad))
    }
    known_good = warm_up(engine, (2, 4), 4, LOG)
    assert {name: len(batch["good"]) for name, batch in known_good.items()} == {"a": 2}


def test_warm_up_rows_have_the_names_dtypes_and_shapes_of_each_signature():
    """Blank rows have free sizes of 1, random ones two others."""
    given = {}

    class Notes(Echo):
        def run(self, batch, signature_name=DEFAULT_SIGNATURE):
            looks = {key: (rows.dtype, rows.shape) for key, rows in batch.items()}
            given.setdefault(signature_name, []).append(looks)
            return batch

    engine = Notes()
    picture = (
        TensorSpec("image", np.dtype(np.uint8), (2, None, 3)),
        TensorSpec("scale", np.dtype(np.float64), ()),
    )
    text = (TensorSpec("words", STRING, (2,)),)
    engine.signatures = {
        "picture": Signature(picture, picture),
        "text": Signature(text, text),
    }
    warm_up(engine, (1, 5), 4, LOG)
    rows = [(1, 1), (5, 1), *2 * [(1, 32)], (1, 32), (4, 32), *3 * [(1, 64)], (4, 64)]
    assert given == {
        "picture": [
            {"image": (np.uint8, (n, 2, free, 3)), "scale": (np.float64, (n,))}
            for n, free in rows
        ],
        "text": [{"words": (STRING, (n, 2))} for n in (1, 5, 1, 1, 1, 4)],
    }


@pytest.mark.parametrize("size", [1, 4], ids=["one row", "full batch"])
def test_warm_up_failure_on_rows_of_zeros_is_a_load_error(size):
    """A model that raises on blank rows of fixed shape is not served, and says why."""
    error = ValueError("[[{{node a}}]]\n/srv/models/secret/words.txt is away")
    text = rf"{size} rows of zeros \(ValueError: words.txt is away\)"
    with pytest.raises(ModelLoadError, match=text):
        warm_up(_fails(error, size), (1, 4), 4, LOG)


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        pytest.param(OneValue, "gave 0 rows of 'output' for 1 rows", id="one value"),
        pytest.param(OutputMissing, "gave no output 'output'", id="missing"),
    ],
)
def test_warm_up_with_wrong_outputs_is_a_load_error(engine, text):
    """A model without one output row per input row is not served."""
    specs = [(TensorSpec(name, FLOAT32, (1,)),) for name in ("input", "output")]
    wrong = engine()
    wrong.signatures = {DEFAULT_SIGNATURE: Signature(*specs)}
    with pytest.raises(ModelLoadError, match=text):
        warm_up(wrong, (1, 4), 4, LOG)


STRINGS = TensorSpec("input", STRING, (1,))
ROWS_OF_FREE_SIZE = TensorSpec("input", FLOAT32, (None,))


@pytest.mark.parametrize(
    "spec", [STRINGS, ROWS_OF_FREE_SIZE], ids=["strings", "free size"]
)
def test_model_that_fails_on_all_rows_is_a_load_error(spec):
    """The error has the engine's reason, without a path."""
    error = RuntimeError("/srv/secret/words.txt; No such file or directory")
    text = (
        "serving_default fails on all rows: RuntimeError: words.txt; No such file or "
        "directory. The graph reads a file that is not there"
    )
    engine = _fails(error, 1, 4, spec=spec)
    with pytest.raises(ModelLoadError, match=text):
        warm_up(engine, (1, 4), 4, LOG)
    # EXAMPLE of service.py is such a row.
    assert warm_up(engine, (1, 4), 4, LOG, has_known_good=True) == {}


@pytest.mark.parametrize(
    "spec", [STRINGS, ROWS_OF_FREE_SIZE], ids=["strings", "free size"]
)
def test_model_that_refuses_all_rows_for_their_values_is_served(spec, caplog):
    """Blank and random rows may be invalid where clients' are not."""
    error = RefusedInput("the model refuses this input: no PNG")
    assert warm_up(_fails(error, 1, 4, spec=spec), (1, 4), 4, LOG) == {}
    assert "model m version 1: warm-up of serving_default" in caplog.text
    assert "no PNG); clients may do better" in caplog.text


def test_model_of_files_that_its_rows_name_is_served():
    """That a file is not there is about the row which names it."""

    def read(batch):
        raise RuntimeError(f"{batch['x'][0].decode()}; No such file or directory")

    name = TensorSpec("x", STRING, ())
    assert warm_up(Computes(read, Signature((name,), (OUTPUT,))), SIZES, 4, LOG) == {}


@pytest.mark.parametrize("error", [Unavailable("away"), Late("away")])
def test_warm_up_without_an_answer_of_the_server_is_retried(error):
    """The error says that the load may succeed later."""
    with pytest.raises(NotYetLoadable, match=r"^away$"):
        warm_up(_fails(error, 1), [1], 4, LOG)


def test_warm_up_out_of_memory_with_a_full_batch_is_tolerated():
    """The model is served."""
    warm_up(_fails(OutOfDeviceMemory("4 rows do not fit"), 4), (1, 4), 4, LOG)


@pytest.mark.parametrize(
    ("size", "text"), [(1, "not even one row"), (2, "not even a batch of 2 rows")]
)
def test_warm_up_out_of_memory_with_the_smallest_batch_is_a_load_error(size, text):
    """A model whose memory is too small for its smallest size is not served."""
    with pytest.raises(ModelLoadError, match=f"{text} fits: too large"):
        warm_up(_fails(OutOfDeviceMemory("too large"), size), (size, 4), 4, LOG)


ROW = TensorSpec("x", FLOAT32, (3,))
FREE = TensorSpec("x", FLOAT32, (None, 3))


def _warm_up(compute, *, row=ROW, out=ROW, sizes=SIZES):
    """Warm up a model that computes `y` from `x`; return the batches it got."""
    return _warmed_up(compute, row=row, out=out, sizes=sizes)[0]


def _warmed_up(compute, *, row=ROW, out=ROW, sizes=SIZES):
    """Return the batches that the model got, and why it is not batched."""
    batches = []

    def run(batch):
        batches.append(batch["x"])
        return {"y": compute(batch["x"])}

    output = TensorSpec("y", out.dtype, out.shape)
    engine = Computes(run, Signature((row,), (output,)))
    warm_up(engine, sizes, SMALL, LOG)
    (signature,) = engine.signatures.values()
    assert signature.unbatched == bool(signature.limit_reason)
    assert signature.batch_sizes(sizes) == ((1,) if signature.unbatched else sizes)
    return batches, signature.batching_note()


def test_known_rows_take_the_place_of_blank_ones():
    """Rows run alone, then as the first of each batch, whose last row is blank."""
    alone, _, _, *batches = _warm_up(lambda x: x * 2, sizes=(2, 4, 64))
    assert [len(batch) for batch in (alone, *batches)] == [2, 4, 64]
    assert alone[0].any()
    assert (alone[0] == alone[1]).all()
    for batch in batches:
        assert (batch[0] == alone[0]).all()
        assert not (batch[1] == batch[0]).any()
        assert not batch[-1].any()


@pytest.mark.parametrize("sizes", [(1, 64), (8,), (2, 4, 8)])
@pytest.mark.parametrize("row", [ROW, FREE], ids=["fixed size", "free size"])
def test_rows_that_depend_on_their_batch_are_not_batched(row, sizes, caplog):
    """The log names the output, and what makes the model batch again."""
    text = (
        r"^not batched: its rows depend on each other: a row's y differs by .* more "
        r"than 0.0001. To have it batched, .* write max_batch_size = 1 into its basket."
        r"toml$"
    )
    batches, note = _warmed_up(
        lambda x: x - x.mean(axis=0), row=row, out=row, sizes=sizes
    )
    assert re.match(text, note)
    assert f"signature serving_default: {note}" in caplog.text
    # Rows of zeros have run as clients' rows will: alone.
    assert [len(batch) for batch in batches if not batch.any()][-1] == 1


def test_dependence_of_later_rows_on_earlier_ones_is_found():
    """Of a running sum the first row is right."""
    assert _warmed_up(lambda x: x.cumsum(axis=0))[1]


def test_dependence_of_a_few_thousandths_is_found():
    """In float32, rounding is a thousand times less."""
    assert _warmed_up(lambda x: x + 0.003 * x.mean(axis=0))[1]


def test_dependence_of_a_thousandth_is_found_where_nothing_is_rounded():
    """A nudge of the row changes it as much, and no copy of it is rounded."""
    assert _warmed_up(lambda x: x + np.float32(1e-3) * x.mean(axis=0))[1]


def test_scaling_by_the_largest_value_of_a_batch_is_found():
    """As of pictures of which some are scaled already; random rows are 0 to 1."""
    assert _warmed_up(lambda x: x / max(1.0, x.max()))[1]


def test_dependence_above_sixteen_rows_is_found():
    """It is confirmed in batches of the size that showed it."""
    assert _warmed_up(lambda x: x - x[20:].sum(axis=0) if len(x) > 20 else x)[1]


def test_one_of_many_labels_may_differ_and_no_more():
    """Of 200 labels a neighbor changes three."""
    labels = TensorSpec("y", np.dtype(np.int64), (200,))

    def compute(x, wrong=3):
        found = np.zeros((len(x), 200), np.int64)
        found[:, :wrong] = x.max() > x[:, :1].max(axis=1, keepdims=True)
        return found

    assert _warmed_up(compute, out=labels)[1]


@pytest.mark.parametrize("sizes", [(1,), SIZES])
def test_model_that_refuses_zeros_is_served(sizes, caplog):
    """Such as for a division by zero: random rows are computed in all sizes."""

    def divides(x):
        if not x.all():
            raise ZeroDivisionError("Integer division by zero")
        return 1 / x

    assert not _warmed_up(divides, sizes=sizes)[1]
    assert "rows of zeros (ZeroDivisionError: Integer division by" in caplog.text


@pytest.mark.parametrize("row", [ROW, FREE], ids=["fixed size", "free size"])
def test_rows_that_depend_on_their_batch_are_served_alone(row):
    """With max_batch_size = 1 no row has a neighbor, and nothing is said."""
    note = _warmed_up(lambda x: x - x.mean(axis=0), row=row, out=row, sizes=(1,))[1]
    assert not note


@pytest.mark.parametrize("share", [0.0, 0.01])
def test_rows_may_differ_as_in_half_precision(share):
    """A hundredth of the largest value is rounding if copies of a row have it, too."""
    assert not _warmed_up(lambda x: x + share * x * (len(x) > 1))[1]


def test_one_of_eight_class_ids_may_differ():
    """Nearly equal scores may change places between batches of other sizes."""
    ids = TensorSpec("y", np.dtype(np.int64), ())

    def classes(wrong):
        def compute(x):
            found = np.zeros(len(x), np.int64)
            found[:wrong] = len(x) > 1
            return found

        return compute

    assert not _warmed_up(classes(1), out=ids)[1]
    assert "a row's y differs by 5.0e-01" in _warmed_up(classes(4), out=ids)[1]


@pytest.mark.parametrize("sizes", [(1, 64), (2, 8), (1,)])
def test_size_that_follows_the_number_of_rows_is_a_load_error(sizes):
    """As of Keras's TimeDistributed; it is wrong for a single row too."""
    out = TensorSpec("y", FLOAT32, (None, 4))

    def steps(x):
        return np.zeros((len(x), len(x), 4), np.float32)

    text = rf"shape \({sizes[0]}, 4\) in a batch of {sizes[0]} and \(4, 4\) in one of 4"
    with pytest.raises(
        ModelLoadError, match=f"{text}. So Keras computes TimeDistributed"
    ):
        _warm_up(steps, row=FREE, out=out, sizes=sizes)


@pytest.mark.parametrize("row", [ROW, FREE], ids=["fixed size", "free size"])
def test_rows_of_a_fixed_batch_that_depend_on_each_other_are_a_load_error(row):
    """Rows of several clients would share it; max_batch_size has no effect."""
    output = TensorSpec("y", row.dtype, row.shape)

    def model(compute):
        def run(batch):
            assert len(batch["x"]) == 4
            return {"y": compute(batch["x"])}

        signature = Signature((row,), (output,), fixed_batch_size=4)
        return Computes(run, signature)

    warm_up(model(lambda x: x * 2), SIZES, SMALL, LOG)
    with pytest.raises(
        ModelLoadError, match="exactly 4: save it with a free first dimension"
    ):
        warm_up(model(lambda x: x - x.mean(axis=0)), SIZES, SMALL, LOG)


def test_whole_tensors_are_run_once_and_not_compared():
    """Their first dimension is no number of rows."""
    batches = []

    def run(batch):
        batches.append(batch["x"].shape)
        return {"y": batch["x"]}

    tensor = (TensorSpec("x", FLOAT32, (None, 3)),)
    output = (TensorSpec("y", FLOAT32, (None, 3)),)
    signature = Signature(tensor, output, takes_whole_tensors=True)
    warm_up(Computes(run, signature), SIZES, SMALL, LOG)
    assert batches == [(1, 1, 3)]


def test_whole_tensors_that_one_value_is_too_small_for_are_served():
    """A picture of one pixel is too small to be pooled."""

    def run(batch):
        if batch["x"].shape[1] < 3:
            raise ValueError("MaxPool")
        return {"y": batch["x"]}

    tensor = (TensorSpec("x", FLOAT32, (None, 3)),)
    output = (TensorSpec("y", FLOAT32, (None, 3)),)
    signature = Signature(tensor, output, takes_whole_tensors=True)
    assert warm_up(Computes(run, signature), SIZES, SMALL, LOG) == {}


def test_rows_padded_to_the_longest_of_a_batch_are_served_alone_only():
    """Their shape depends on their neighbors."""
    out = TensorSpec("y", FLOAT32, (None,))

    def padded(x):
        return np.zeros((len(x), int(99 * x[:, 0, 0].max())), np.float32)

    _, note = _warmed_up(padded, row=FREE, out=out)
    assert re.search(r"y has shape .* alone .* max_batch_size", note)
    assert not _warmed_up(padded, row=FREE, out=out, sizes=(1,))[1]


def test_text_model_that_pads_to_the_longest_text_is_not_batched():
    """The log says what such models lack."""
    text = TensorSpec("x", STRING, ())

    def longest(x):
        words = [len(each.split()) for each in x]
        return np.array([(count, max(words)) for count in words], np.float32)

    _, note = _warmed_up(longest, row=text, out=TensorSpec("y", FLOAT32, (2,)))
    assert "give TextVectorization an output_sequence_length" in note


@pytest.mark.parametrize("draws", [True, False], ids=["random", "of the batch"])
def test_rows_that_are_too_short_are_not_compared(draws):
    """What was in memory is no answer: the next size counts."""
    garbage = np.random.default_rng(0)

    def pooled(x):
        if x.shape[1] > 40:
            return x.mean(axis=1)
        if draws:
            return garbage.random((len(x), 3), np.float32)
        return np.full((len(x), 3), len(x), np.float32)

    assert not _warmed_up(pooled, row=FREE, out=TensorSpec("y", FLOAT32, (3,)))[1]


def test_model_that_crops_more_than_its_rows_have_is_compared_with_longer_ones():
    """An empty output is none."""
    out = TensorSpec("y", FLOAT32, (None, 3))
    batches, note = _warmed_up(lambda x: x[:, 300:], row=FREE, out=out)
    assert not note
    assert max(batch.shape[1] for batch in batches) == 2048


@pytest.mark.parametrize("sizes", [(1,), (1, 64)])
@pytest.mark.parametrize("row", [ROW, FREE], ids=["fixed size", "free size"])
def test_row_with_another_shape_than_the_signatures_is_a_load_error(row, sizes):
    """Rows are checked with max_batch_size = 1 too."""
    with pytest.raises(
        ModelLoadError,
        match=r"a row's y has shape \(2,\), and its signature says \(3,\)",
    ):
        _warm_up(lambda x: np.zeros((len(x), 2), np.float32), row=row, sizes=sizes)


def test_random_answers_are_a_warning(caplog):
    """They differ between runs of one row, so the batch is not at fault."""
    random = np.random.default_rng(0)
    _warm_up(lambda x: random.random(x.shape), sizes=(1, 2, 64))
    assert caplog.text.count("answers differ from run to run") == 1


@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_model_that_sorts_by_nearly_equal_scores_is_served(dtype, caplog):
    """A difference of rounding changes the order of a detector's boxes."""
    row = TensorSpec("x", np.dtype(dtype), (999,))
    boxes = np.random.default_rng(1).random(999)

    def detect(x):
        rounding = 1 + 1e-3 * boxes * (len(x) > 1)
        return boxes[np.argsort(x * rounding, axis=1)]

    out = TensorSpec("y", np.dtype(float), (999,))
    _warm_up(detect, row=row, out=out)
    assert caplog.text.count("answers differ for nearly equal rows") == 1


def test_ids_are_tried_below_the_vocabulary():
    """A model that refuses ids above 9 is compared with smaller ones."""
    ids = TensorSpec("x", np.dtype(np.int32), (3,))

    def embed(x):
        if x.max() > 9:
            raise ValueError("not in the vocabulary")
        return x - x.mean(axis=0)

    assert "a row's y differs" in _warmed_up(embed, row=ids)[1]


def test_dependence_is_found_if_rows_of_zeros_are_refused():
    """A blank row is in no batch then."""
    ids = TensorSpec("x", np.dtype(np.int32), (3,))

    def embed(x):
        if not x.any(axis=1).all():
            raise RefusedInput("a row of zeros is none")
        return x + x.sum()

    row = TensorSpec("y", np.dtype(np.int32), (3,))
    assert "a row's y differs" in _warmed_up(embed, row=ids, out=row)[1]


def test_model_that_refuses_random_rows_is_served(caplog):
    """Only blank rows run then."""
    caplog.set_level("INFO", "app")

    def only_zeros(x):
        if x.any():
            raise ValueError("no such row")
        return x

    batches = _warm_up(only_zeros)
    assert [len(batch) for batch in batches if not batch.any()] == [1, 64]
    assert "serving_default refuses random rows: no such row" in caplog.text


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_model_that_refuses_the_id_0_is_served(dtype, caplog):
    """It has no blank row that is known to be good; zeros that are no ids must run."""
    row = TensorSpec("x", np.dtype(dtype), (1,))

    def run(batch):
        if (batch["x"] < 1000).any():
            raise RefusedInput("the model refuses this input: 0 is no id")
        return {"y": batch["x"]}

    engine = Computes(run, Signature((row,), (TensorSpec("y", row.dtype, (1,)),)))
    text = "fails on a batch of 1 rows of zeros (the model refuses this input: 0 is no"
    if dtype == np.int64:
        assert warm_up(engine, SIZES, SMALL, LOG) == {}
        assert f"{text} id); clients may do better" in caplog.text
    else:
        with pytest.raises(ModelLoadError, match=re.escape(text)):
            warm_up(engine, SIZES, SMALL, LOG)


def test_model_of_one_row_is_served_alone(caplog):
    """With max_batch_size = 1 a batch of several rows may fail."""
    caplog.set_level("INFO", "app")

    def one(x):
        (_,) = x
        return x

    _warm_up(one, row=FREE, out=FREE, sizes=(1,))
    assert not caplog.text


def test_blank_rows_run_alone_if_the_largest_batch_does_not_fit():
    """What the circuit breaker takes for known good has run."""
    engine = Fails(OutOfDeviceMemory("4 rows do not fit"), 4)
    engine.signatures = {DEFAULT_SIGNATURE: Signature((NUMBER,), (OUTPUT,))}
    known_good = warm_up(engine, (1, 4), SMALL, LOG)
    assert engine.batches[-1].tolist() == [[0]]
    assert known_good[DEFAULT_SIGNATURE]["input"].tolist() == [[0]]
