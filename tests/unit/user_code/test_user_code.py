"""What preprocess gives as rows of a model, and what postprocess gives as JSON."""

import json
import logging
import textwrap

import numpy as np
import pytest

from app import BadInput
from app.batching.model_log import ModelLog
from app.codec.uneven import Uneven
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.python import objects
from app.engines.python.engine import OBJECTS
from app.engines.python.service import Service
from app.errors import Late, ModelFailed
from app.user_code.user_code import UserCode
from tests.support.signatures import takes, takes_several


@pytest.fixture
def code(tmp_path):
    """Make the UserCode of a service.py, for a signature or for objects."""

    def code(text, signature=OBJECTS, **about):
        (tmp_path / "service.py").write_text(textwrap.dedent(text))
        signatures = {DEFAULT_SIGNATURE: signature}
        options = {"is_packed": False} | about
        return UserCode(Service(tmp_path), signatures, ModelLog("m", 1), **options)

    return code


GIVE = "def preprocess(instance): return instance"


@pytest.mark.parametrize(
    ("signature", "values", "wanted"),
    [
        (takes("f4", 2), [[1, 2], (3, 4)], np.array([[1, 2], [3, 4]], "f4")),
        (takes("f4", 2), [[1, True]], np.array([[1, 1]], "f4")),
        (takes("i8", 2), [[1, 2**63 - 1]], np.array([[1, 2**63 - 1]], "i8")),
        (takes("f4"), [1, 2.5], np.array([1, 2.5], "f4")),
        (takes("u1"), [np.int64(7)], np.array([7], "u1")),
        (takes("f4", 2), [np.array([1, 2])], np.array([[1, 2]], "f4")),
        (takes("f4", 2), [np.array([1, 2], ">f4")], np.array([[1, 2]], "f4")),
        (takes("i8", 2), [np.array([1, -2], ">i8")], np.array([[1, -2]], "i8")),
        (takes("i4"), [np.array(3, ">i2")], np.array([3], "i4")),
        (takes("bool"), [True], np.array([True])),
        (takes("O"), ["é"], np.array(["é".encode()], object)),
        (takes("O"), [b"a\0", "b\0"], np.array([b"a\0", b"b\0"], object)),
        (takes("O", 2), [["a", b"b"]], np.array([[b"a", b"b"]], object)),
    ],
)
def test_values_of_preprocess_are_rows_of_the_only_input(
    code, signature, values, wanted
):
    """Arrays, numbers and text get the model's dtype."""
    inputs = code(GIVE, signature).inputs_of(values, "instances")
    np.testing.assert_array_equal(inputs["x"], wanted, strict=True)


def test_dict_of_preprocess_has_a_value_for_each_input(code):
    """A dict may also name the only input."""
    signature = takes_several(a=("f4", 2), b=("O",))
    rows = [{"a": [1, 2], "b": "x"}, {"b": "y", "a": [3, 4]}]
    inputs = code(GIVE, signature).inputs_of(rows, "instances")
    assert inputs["a"].tolist() == [[1, 2], [3, 4]]
    assert inputs["b"].tolist() == [b"x", b"y"]
    assert code(GIVE, takes("f4")).inputs_of([{"x": 1}], "i")["x"].tolist() == [1]


def test_rows_of_unlike_lengths_are_grouped(code):
    """As those of a request without service.py."""
    inputs = code(GIVE, takes("i4", None)).inputs_of([[1], [2, 3], [4]], "instances")
    assert isinstance(inputs, Uneven)
    assert inputs.places == [[0, 2], [1]]


@pytest.mark.parametrize(
    ("signature", "value", "text"),
    [
        (takes("f4", 2), [1, 2, 3], "shape (3,) of x for i[1], expected (2,)"),
        (takes("f4", 2), 1, "shape () of x for i[1], expected (2,)"),
        (takes("i4"), 1.5, "float64 of x for i[1], which does not fit int32"),
        (takes("u1"), 300, "int64 of x for i[1], which does not fit uint8"),
        (takes("f4"), "a", "a str of x for i[1], expected float32 of shape ()"),
        (takes("f4", 2), None, "None of x for i[1], expected float32 of shape (2,)"),
        (takes("f4", None), [[1], [2, 3]], "a list of x for i[1], expected float32 of"),
        (takes("O"), 3, "a int of x for i[1], expected string of shape ()"),
        (takes("O"), None, "None of x for i[1], expected string of shape ()"),
        (takes("f4"), {"y": 1}, "'y' for i[1], expected x"),
        (takes("f4"), {}, "nothing for i[1], expected x"),
        (
            takes_several(a=("f4",), b=("f4",)),
            [1, 2],
            "a list for i[1], expected a dict with a, b",
        ),
    ],
)
def test_row_that_does_not_fit_the_model_is_the_codes_fault(
    code, signature, value, text
):
    """It is a 500 that names service.py, and what was given and expected."""
    names = [spec.name for spec in signature.inputs]
    fits = {
        spec.name: np.zeros([size or 1 for size in spec.shape], spec.dtype).tolist()
        if spec.dtype.kind != "O"
        else "a"
        for spec in signature.inputs
    }
    assert list(fits) == names
    with pytest.raises(ModelFailed) as raised:
        code(GIVE, signature).inputs_of([fits, value], "i")
    assert str(raised.value).startswith(f"service.py: preprocess gave {text}")


def test_bad_input_of_preprocess_names_the_instance(code):
    """It stays a client's error."""
    text = "from app import BadInput\ndef preprocess(i): raise BadInput('no text')"
    with pytest.raises(BadInput, match=r"^instances\[0\]: no text$"):
        code(text).inputs_of([1], "instances")


@pytest.mark.parametrize("raised", ["KeyError('secret')", "SystemExit(1)"])
def test_other_error_of_preprocess_is_a_failure_with_its_place(code, caplog, raised):
    """The traceback is in the log, and the error's text is not in the answer."""
    with (
        caplog.at_level(logging.ERROR, "app"),
        pytest.raises(ModelFailed) as failure,
    ):
        code(f"def preprocess(i):\n    raise {raised}").inputs_of([1], "rows")
    name = raised.partition("(")[0]
    assert str(failure.value) == f"service.py: preprocess failed on rows[0] ({name})"
    assert "line 2, in preprocess" in caplog.text
    assert "(line 2)" in caplog.text


def test_import_in_a_function_says_where_it_belongs(code, tmp_path):
    """Modules beside service.py are found while it is imported, and not later."""
    (tmp_path / "helper.py").write_text("def words(text):\n    import vocabulary")
    (tmp_path / "vocabulary.py").touch()
    called = "import helper\ndef preprocess(text): return helper.words(text)"
    with pytest.raises(ModelFailed) as raised:
        code(called).inputs_of(["a"], "instances")
    assert str(raised.value) == (
        "service.py: preprocess failed on instances[0] (ModuleNotFoundError): a "
        "function imports vocabulary, which lies beside service.py: import it at the "
        "top of the file instead, as such modules are found only while the version is "
        "loaded"
    )
    # Within the package of service.py they are found at any time.
    (tmp_path / "helper.py").write_text(
        "def words(text):\n    from . import vocabulary\n    return vocabulary.__name__"
    )
    called = "from . import helper\ndef preprocess(text): return helper.words(text)"
    inputs = code(called).inputs_of(["a"], "instances")
    assert inputs["instance"][0].endswith(".vocabulary")
    with pytest.raises(ModelFailed, match=r"\(ModuleNotFoundError\)$"):
        code("def preprocess(text): import nowhere").inputs_of(["a"], "instances")


def test_check_is_made_before_each_instance(code):
    """Work for which nobody waits ends between two instances."""
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise Late("too late")

    with pytest.raises(Late):
        code(GIVE).inputs_of([1, 2, 3, 4], "instances", check)
    assert len(calls) == 3


def test_objects_are_rows_as_they_are(code):
    """Without preprocess the instance itself is the row."""
    user_code = code("def predict(model, batch): ...")
    instances = [{"a": [1]}, None, "text"]
    assert user_code.inputs_of(instances, "i")["instance"].tolist() == instances
    assert user_code.reads_instances
    assert user_code.writes_predictions


def test_object_that_cannot_cross_is_a_failure(code):
    """A shared model process gets bytes."""
    user_code = code("def preprocess(i): return {1}", is_packed=True)
    with pytest.raises(ModelFailed, match="what can't cross between processes"):
        user_code.inputs_of([1], "i")


def test_functions_decide_what_the_code_is_asked_for(code):
    """Requests and responses that no function handles are Basket's own."""
    both = code("def preprocess(i): ...\ndef postprocess(r): ...", takes("f4"))
    none = code("EXAMPLE = 1", takes("f4"))
    assert (both.reads_instances, both.writes_predictions) == (True, True)
    assert (none.reads_instances, none.writes_predictions) == (False, False)


def predictions(user_code, outputs):
    return json.loads(user_code.body_of(outputs))["predictions"]


def test_postprocess_gets_each_row(code):
    """A row of one output is its array, one of several a dict by name."""
    user_code = code("def postprocess(row): return row['a'] + row['b']", takes("f4"))
    outputs = {"a": np.array([1, 2]), "b": np.array([10, 20])}
    assert predictions(user_code, outputs) == [11, 22]
    user_code = code("def postprocess(row): return row.argmax()", takes("f4"))
    assert predictions(user_code, {"y": np.array([[1, 2], [4, 3]])}) == [1, 0]


def test_postprocess_gets_a_copy_of_an_array_of_predict(code):
    """It may be a row of a table that predict keeps."""
    user_code = code("def postprocess(row): row *= 2; return row")
    kept = np.array([1, 2])
    answer = {"answer": objects.array_of([kept, kept])}
    assert predictions(user_code, answer) == [[2, 4], [2, 4]]
    assert kept.tolist() == [1, 2]


def test_example_stays_as_it_is(code):
    """Preprocess may change the instance that it gets."""
    user_code = code(
        """
        EXAMPLE = {"text": "a"}
        def preprocess(instance): return instance.pop("text")
        """
    )
    for _ in range(2):
        assert user_code.example_inputs()["instance"].tolist() == ["a"]
    assert user_code.example_json(100) == {"text": "a"}


def test_postprocess_gets_copies(code):
    """The outputs, which may be captured, stay as they are."""
    user_code = code("def postprocess(row): row *= 2; return row", takes("f4", 2))
    outputs = {"y": np.array([[1, 2], [3, 4]])}
    assert predictions(user_code, outputs) == [[2, 4], [6, 8]]
    assert outputs["y"].tolist() == [[1, 2], [3, 4]]


def test_predictions_may_be_all_that_json_can_hold(code):
    """Arrays and NumPy's numbers are lists and numbers, bytes are text or b64."""
    user_code = code(
        """
        import numpy as np
        def postprocess(row):
            return [np.float32(0.5), np.array(3), np.eye(2)[:, 0], {2: (1, None)},
                    b"text", b"\\xff", np.array(["a"], object), np.bool_(True)]
        """
    )
    answer = {"answer": np.array([0], object)}
    assert predictions(user_code, answer) == [
        [0.5, 3, [1.0, 0.0], {"2": [1, None]}, "text", {"b64": "/w=="}, ["a"], True]
    ]


def test_prediction_that_json_cannot_hold_is_a_failure(code, caplog):
    """The error names the function, the place and the type, and what to give."""
    answer = {"answer": np.array([0, 0], object)}
    for text, name in [
        ("def postprocess(row): return row", "postprocess"),
        ("def predict(model, batch): ...", "predict"),
    ]:
        answer["answer"][1] = {"a": [0, {1}]}
        with pytest.raises(ModelFailed) as raised:
            code(text).body_of(answer)
        assert str(raised.value) == (
            f"service.py: {name} gave what JSON can't hold: predictions[1]['a'][1] is "
            "of type set: it has no order: give a sorted list"
        )
        assert str(raised.value) in caplog.text


def test_error_of_postprocess_is_a_failure_with_its_row(code):
    """Also a BadInput, as the client's input was right."""
    for error in ("KeyError('x')", "BadInput('x')", "SystemExit"):
        text = f"from app import BadInput\ndef postprocess(row): raise {error}"
        with pytest.raises(ModelFailed, match=r"postprocess failed on row 0 \("):
            code(text).body_of({"answer": np.array([0], object)})


def test_code_without_functions_leaves_requests_as_they_are(code):
    """Neither instances nor predictions pass through it."""
    user_code = code("import json", takes("f4", 2))
    assert not user_code.reads_instances
    assert not user_code.writes_predictions


def test_example_is_shown_as_json(code):
    """What JSON can't hold, or not in so many bytes, is not shown."""

    def shown(example, max_bytes=1000):
        return code(f"EXAMPLE = {example}").example_json(max_bytes)

    assert shown("{'a': (1, b'b')}") == {"a": [1, "b"]}
    assert shown("b'b'") == {"b64": "Yg=="}
    assert shown("{1}") is None
    assert shown("'b' * 98", 100) == "b" * 98
    assert shown("'b' * 99", 100) is None
