"""The engine of a service.py: predict with and without a model file."""

import sys
import textwrap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.engines import open_engine
from app.engines.base import DEFAULT_SIGNATURE, Signature, TensorSpec
from app.engines.python import objects
from app.engines.python.engine import ANSWER, INSTANCE, PythonEngine
from app.engines.python.service import Service
from app.errors import ModelFailed, ModelLoadError, RefusedInput, WrongOutputs
from app.settings import Settings
from testing.server import simulated_models
from tests.support.engines import Echo, Raises

SIMULATION = {"base_ms": 0, "input_shape": [3], "outputs": 2}


@pytest.fixture
def opened(tmp_path):
    """Open a version with a service.py, beside a simulated model or alone."""

    def opened(text, *, simulation=None, **settings):
        folder = tmp_path / "m" / "1"
        if simulation is None:
            folder.mkdir(parents=True)
        else:
            simulated_models(tmp_path, m=simulation)
        (folder / "service.py").write_text(textwrap.dedent(text))
        return open_engine(folder, Settings(user_code=True, **settings))

    return opened


def answers(engine, *rows):
    batch = {INSTANCE.name: objects.array_of(rows)}
    return engine.run(batch)[ANSWER.name].tolist()


def test_predict_gets_what_load_returned_and_a_list(opened):
    """Rows are any objects, and so are the answers."""
    engine = opened(
        """
        def load(folder): return folder.name
        def predict(model, batch):
            assert type(batch) is list
            return [(model, row) for row in batch]
        """
    )
    assert engine.platform == "python"
    assert answers(engine, {"a": 1}, None) == [("1", {"a": 1}), ("1", None)]


def test_predict_without_load_gets_no_model(opened):
    """A function alone is a model."""
    engine = opened("def predict(model, batch): return [model for _ in batch]")
    assert answers(engine, 1) == [None]


@pytest.mark.parametrize(
    "result", ["np.array([[1, 2], [3, 4]])", "([1, 2], [3, 4])", "iter(np.eye(2))"]
)
def test_answers_may_be_an_array_or_anything_with_rows(opened, result):
    """What has as many parts as there are rows is taken apart."""
    engine = opened(f"import numpy as np\ndef predict(m, batch): return {result}")
    assert len(answers(engine, "a", "b")) == 2


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("batch[1:]", "predict gave 2 answers for 3 rows"),
        ("batch * 2", "predict gave 6 answers for 3 rows"),
    ],
)
def test_wrong_number_of_answers_may_be_one_row_s_fault(opened, result, text):
    """The error has both numbers, and its class lets the rows run again in parts."""
    engine = opened(f"def predict(model, batch): return {result}")
    with pytest.raises(ModelFailed, match=text) as raised:
        answers(engine, 1, 2, 3)
    assert raised.type is ModelFailed


def test_predict_that_returns_no_list_gives_wrong_outputs(opened):
    """The error has the class that was returned."""
    engine = opened("def predict(model, batch): return None")
    with pytest.raises(WrongOutputs, match="predict gave no list, but NoneType"):
        answers(engine, 1, 2, 3)


@pytest.mark.parametrize("simulation", [None, SIMULATION])
@pytest.mark.parametrize("error", ["ValueError('secret')", "SystemExit(3)"])
def test_error_of_predict_names_service(opened, simulation, error):
    """It is a failure of the row, without the error's text."""
    engine = opened(f"def predict(m, b): raise {error}", simulation=simulation)
    batch = {"input": ROWS, INSTANCE.name: objects.array_of([1])}
    name = error.partition("(")[0]
    with pytest.raises(ModelFailed, match=rf"^service.py: predict failed \({name}\)$"):
        engine.run(batch)


@pytest.mark.parametrize("name", ["preprocess", "postprocess"])
def test_function_without_its_signature_is_a_load_error(tmp_path, name):
    """A model without serving_default is refused at the load, not at each request."""
    other = Echo()
    other.signatures = {"other": other.signatures[DEFAULT_SIGNATURE]}
    (tmp_path / "service.py").write_text(f"def {name}(value): return value")
    with pytest.raises(ModelLoadError, match=f"service.py has {name}, .* none of that"):
        PythonEngine(Service(tmp_path), other, packed=False)
    (tmp_path / "service.py").write_text("helper = 1")
    assert PythonEngine(Service(tmp_path), other, packed=False).signatures.keys() == {
        "other"
    }


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("['é', 'b']", ["é".encode(), b"b"]),
        ("np.array(['a', 'b'])", [b"a", b"b"]),
        ("np.array([b'a\\0', 'b'], object)", [b"a\0", b"b"]),
    ],
)
def test_texts_of_predict_are_bytes(value, wanted, tmp_path):
    """An output of strings may be text; zero bytes at its end stay."""
    engine = engine_of_strings(tmp_path, value)
    outputs = engine.run({"text": np.array([b"x", b"y"], object)})
    assert outputs["label"].tolist() == wanted


def test_number_of_predict_for_a_string_is_a_wrong_output(tmp_path):
    """The text names the output and the type."""
    engine = engine_of_strings(tmp_path, "['a', 1]")
    with pytest.raises(WrongOutputs, match="predict gave label: a int is neither text"):
        engine.run({"text": np.array([b"x", b"y"], object)})


def engine_of_strings(folder, value):
    """Return the engine of a predict that gives a value, for strings in and out."""
    text = f"import numpy as np\ndef predict(model, batch): return {value}"
    (folder / "service.py").write_text(text)
    one = Echo()
    one.signatures = {
        DEFAULT_SIGNATURE: Signature(
            (TensorSpec("text", np.dtype(object), ()),),
            (TensorSpec("label", np.dtype(object), ()),),
        )
    }
    return PythonEngine(Service(folder), one, packed=False)


def test_predict_gets_a_copy_of_the_batch(opened):
    """Rows that it changed before it failed run again as they came."""
    engine = opened(
        """
        def predict(model, batch):
            batch["input"] *= 2
            raise ValueError
        """,
        simulation=SIMULATION,
    )
    rows = np.ones((2, 3), "f4")
    with pytest.raises(ModelFailed):
        engine.run({"input": rows})
    assert (rows == 1).all()


def test_error_of_the_model_in_predict_is_its_own(tmp_path):
    """A refusal or a lack of memory counts as without service.py."""
    text = "def predict(model, batch): return model(batch)"
    (tmp_path / "service.py").write_text(text)
    model = Raises(RefusedInput("no such id"))
    engine = PythonEngine(Service(tmp_path), model, packed=False)
    with pytest.raises(RefusedInput, match="no such id"):
        engine.run({"input": np.array([[model.poison]], "f4")})


@pytest.mark.parametrize("simulation", [None, SIMULATION])
def test_bad_input_of_predict_refuses_the_rows(opened, simulation):
    """The row at fault is found as any other that a model refuses."""
    text = """
        from app import BadInput
        def predict(model, batch): raise BadInput("no such word")
        """
    engine = opened(text, simulation=simulation)
    batch = {"input": ROWS, INSTANCE.name: objects.array_of([1])}
    with pytest.raises(RefusedInput, match="no such word"):
        engine.run(batch)


def test_service_without_model_and_predict_is_a_load_error(opened):
    """There is nothing that could answer."""
    with pytest.raises(ModelLoadError, match="has no predict, and no model"):
        opened("def preprocess(x): return x")


def test_engine_beside_a_failing_load_is_closed(opened, monkeypatch):
    """The model file's engine does not outlive the failure."""
    closed = []
    monkeypatch.setattr(
        "app.engines.simulated.SimulatedEngine.close", lambda self: closed.append(1)
    )
    with pytest.raises(ModelLoadError, match="load raised KeyError: 'x'"):
        opened("def load(f): raise KeyError('x')", simulation=SIMULATION)
    assert closed == [1]


ROWS = np.array([[1, 2, 3], [4, 5, 6]], np.float32)


def test_model_file_runs_where_there_is_no_predict(opened):
    """Signatures and platform are the model's own."""
    engine = opened("def preprocess(x): return x", simulation=SIMULATION)
    assert engine.platform == "simulated"
    assert engine.run({"input": ROWS})["output"].tolist() == [[1, 2], [4, 5]]


@pytest.mark.parametrize("result", ["model(batch)", "model(batch)['output']"])
def test_predict_beside_a_model_file_may_run_it(opened, result):
    """Without load, the model is a function of a batch; one output needs no name."""
    text = f"def predict(model, batch): return {result}"
    engine = opened(text, simulation=SIMULATION)
    assert engine.run({"input": ROWS})["output"].tolist() == [[1, 2], [4, 5]]


def test_outputs_of_predict_get_the_models_dtype(opened):
    """Lists of Python numbers are outputs too."""
    text = "def predict(model, batch): return [[1, 2]] * len(batch['input'])"
    output = opened(text, simulation=SIMULATION).run({"input": ROWS})["output"]
    np.testing.assert_array_equal(output, np.array([[1, 2]] * 2, "f4"), strict=True)


@pytest.mark.parametrize(
    ("output", "kind"), [("{1, 2}", "set"), ("[[1], [1, 2]]", "list"), ("'a'", "str")]
)
def test_output_of_predict_that_is_no_array_is_a_failure(opened, output, kind):
    """The error names the output, and what was given and expected."""
    text = f"def predict(model, batch): return {output}"
    with pytest.raises(ModelFailed) as raised:
        opened(text, simulation=SIMULATION).run({"input": ROWS})
    assert str(raised.value).startswith(
        f"service.py: predict gave output as a {kind}, of which float32 can't be made:"
    )


def test_close_lets_go_of_what_load_returned(opened):
    """Memory of the model does not stay with a closed version."""
    engine = opened(
        """
        import weakref
        class Model: pass
        def load(folder): return Model()
        def predict(model, batch): return [weakref.ref(model) for _ in batch]
        """
    )
    (model,) = answers(engine, 1)
    assert model() is not None
    engine.close()
    engine.close()
    assert model() is None


def test_close_removes_the_modules_from_sys_modules(opened):
    """They can be collected although the batching thread's objects are a cycle."""
    before = {*sys.modules}
    engine = opened("def predict(model, batch): return batch")
    assert len({*sys.modules} - before) == 1
    engine.close()
    assert {*sys.modules} == before


def test_shared_model_packs_rows_and_answers(opened):
    """Between processes both are bytes."""
    text = "def predict(model, batch): return [[row] for row in batch]"
    engine = opened(text, model_process="shared")
    (answer,) = answers(engine, objects.pack({"a": b"b"}, "preprocess"))
    assert objects.unpack(answer) == [{"a": b"b"}]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers(), inner),
)


@given(VALUES)
def test_packed_values_are_exact(value):
    """Also whole numbers of more than 64 bits."""
    assert objects.unpack(objects.pack(value, "preprocess")) == value


@given(
    arrays.arrays(
        arrays.scalar_dtypes().filter(lambda dtype: dtype.kind in "biufc"),
        arrays.array_shapes(min_dims=0, min_side=0),
    )
)
def test_packed_arrays_are_exact(array):
    """Dtype and shape cross too, and the copy may be written to."""
    copy = objects.unpack(objects.pack({"a": [array]}, "preprocess"))["a"][0]
    np.testing.assert_array_equal(copy, array, strict=True)
    assert copy.flags.writeable


def test_arrays_of_text_are_packed_as_lists():
    """NumPy's scalars and text are values."""
    value = [np.array(["a"], object), np.array("b"), np.int8(3), np.float32(0.5)]
    assert objects.unpack(objects.pack(value, "preprocess")) == [["a"], "b", 3, 0.5]


def test_other_arrays_and_scalars_of_numpy_are_packed_as_values():
    """Fields, masked values and long doubles are what JSON would have."""
    fields = np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])
    masked = np.ma.array([1.5, 2.5], mask=[False, True])
    value = [fields, masked, np.longdouble(0.5), {np.int64(3): np.str_("a")}]
    assert objects.unpack(objects.pack(value, "preprocess")) == [
        [[1, 2.5]],
        [1.5, None],
        0.5,
        {3: "a"},
    ]


def test_keys_that_cannot_cross_are_a_failure():
    """A tuple would become a list, which is no key."""
    with pytest.raises(ModelFailed, match="give text or numbers as keys"):
        objects.unpack(objects.pack({(1, 2): 3}, "predict"))


def test_object_that_cannot_cross_names_the_function():
    """The error says what can."""
    with pytest.raises(ModelFailed, match=r"preprocess gave .*\(a set\): give numbers"):
        objects.pack({1, 2}, "preprocess")
