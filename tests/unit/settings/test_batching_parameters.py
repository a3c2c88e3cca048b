"""TensorFlow Serving's batching parameters file, and its precedence."""

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import SettingsError
from app.settings import Settings, batching_parameters
from app.settings.model_config import read_model_config

VARIABLE = "BASKET_BATCHING_PARAMETERS_FILE"
NUMBER = "expected a whole number from"
ALL = """
# All fields.
max_batch_size { value: 128 }
batch_timeout_micros { value: 0 }
max_enqueued_batches { value: 1000000 }
num_batch_threads { value: 8 }
thread_pool_name { value: "batching" }
allowed_batch_sizes: 1
allowed_batch_sizes: 16
allowed_batch_sizes: 128
pad_variable_length_inputs: true
enable_large_batch_splitting { value: false }
max_execution_batch_size { value: 64 }
"""
LIMITS = {
    "max_batch_size": 128,
    "batch_timeout_micros": 0,
    "max_enqueued_batches": 1_000_000,
    "allowed_batch_sizes": (1, 16, 128),
}
BAD = {
    "an unknown field": ("\n\nmax_batchsize { value: 8 }", 'line 3:1 : .*"max_batchsi'),
    "an unknown field within": ("max_batch_size { size: 8 }", 'line 1:18 : .*"size"'),
    "a bare number": ("max_batch_size: 8", "line 1:17 : .*max_batch_size: 8"),
    "a string": ('max_batch_size { value: "8" }', "line 1:25 : .*max_batch_size.*'?8"),
    "a fraction": (
        "max_batch_size { value: 6.4 }",
        "line 1:25 : .*max_batch_size.*6.4",
    ),
    "a bool": ("max_batch_size { value: true }", "line 1:25 : .*max_batch_size.*true"),
    "a string below its field": ("max_batch_size {\n  value: 'x'\n}", "line 2:10 : "),
    "beyond 64 bits": (
        "max_batch_size { value: 9223372036854775808 }",
        "line 1:25 : .*max_batch_size.*out of range",
    ),
    "many digits": (f"max_batch_size {{ value: {'9' * 5000} }}", "line 1:25 : "),
    "zero": (
        "max_batch_size { value: 0 }",
        f"max_batch_size = 0: {NUMBER} 1 to 1000000",
    ),
    "no value": ("max_batch_size {}", f"max_batch_size = 0: {NUMBER} 1"),
    "negative": (
        "batch_timeout_micros { value: -1 }",
        f"= -1: {NUMBER} 0 to 3600000000",
    ),
    "too much": (
        "max_enqueued_batches { value: 1000001 }",
        f"max_enqueued_batches = 1000001: {NUMBER} 1 to 1000000",
    ),
    "twice": (
        "max_batch_size { value: 8 }\nmax_batch_size { value: 8 }",
        'line 2:.*multiple "max_batch_size" fields',
    ),
    "a size of zero": ("allowed_batch_sizes: 0", rf"sizes = \[0\]: {NUMBER} 1"),
    "sizes that fall": (
        "allowed_batch_sizes: [8, 4]",
        r"allowed_batch_sizes = \[8, 4\]: each number must be larger than the one",
    ),
    "sizes that end elsewhere": (
        "max_batch_size { value: 16 } allowed_batch_sizes: [4, 8]",
        "the last of allowed_batch_sizes is 8 and max_batch_size is 16: they must be",
    ),
    "an end that is missing": ("max_batch_size { value: 8", "line 1:25 : "),
    "something else": ("[max_batch_size]\nvalue = 8", "line 1:"),
}


@pytest.fixture(name="file")
def _file(tmp_path):
    return tmp_path / "batching.txt"


@pytest.fixture(name="start")
def _start(file, tmp_path):
    """Read all settings with this text as the batching file, and with variables."""

    def start(text, **variables):
        file.write_text(text, encoding="utf-8")
        variables = {f"BASKET_{name.upper()}": v for name, v in variables.items()}
        environ = {VARIABLE: str(file), "BASKET_MODEL_DIR": str(tmp_path), **variables}
        return Settings.from_environment(environ)

    return start


def _limits(settings):
    return {name: getattr(settings, name) for name in LIMITS}


def test_all_limits_are_applied(start):
    """Each of the four limits in the file sets its own setting."""
    assert _limits(start(ALL)) == LIMITS


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("max_batch_size { value: 7 }", {"max_batch_size": 7}),
        ("batch_timeout_micros { value: 7 }", {"batch_timeout_micros": 7}),
        ("max_enqueued_batches { value: 7 }", {"max_enqueued_batches": 7}),
        (
            "allowed_batch_sizes: [5, 7]",
            {"allowed_batch_sizes": (5, 7), "max_batch_size": 7},
        ),
        ("", {}),
        ("# nothing\n", {}),
    ],
)
def test_missing_fields_have_their_defaults(start, text, own):
    """Without max_batch_size, it is the last of allowed_batch_sizes."""
    assert _limits(start(text)) == _limits(Settings(**own))


def test_the_example_in_the_docs_is_valid(start):
    """The example file in the docs sets all four limits."""
    text = (Path(__file__).parents[3] / "docs" / "batching.md").read_text()
    (example,) = re.findall(r"```\n(max_batch_size \{.*?)```", text, re.DOTALL)
    assert _limits(start(example)) == {
        "max_batch_size": 32,
        "batch_timeout_micros": 2000,
        "max_enqueued_batches": 100,
        "allowed_batch_sizes": (1, 8, 32),
    }


@pytest.mark.parametrize(
    "text",
    [
        "max_batch_size: { value: 16 } allowed_batch_sizes: [2, 16]",
        "max_batch_size < value: 0x10 >; allowed_batch_sizes:2, allowed_batch_sizes:16",
        "allowed_batch_sizes:[2]\n\nmax_batch_size{value:16}#\nallowed_batch_sizes:16",
    ],
    ids=["a list", "angle brackets", "a list in two places"],
)
def test_text_format_variants(start, text):
    """Any form of protobuf's text format is read."""
    made = start(text)
    assert (made.max_batch_size, made.allowed_batch_sizes) == (16, (2, 16))


@pytest.mark.parametrize(("text", "problem"), BAD.values(), ids=BAD)
def test_malformed_file_is_a_configuration_error(start, file, text, problem):
    """The error names the variable, and the field or line."""
    with pytest.raises(SettingsError, match=f"(?s){problem}") as refused:
        start(text)
    assert str(refused.value).startswith(f"{VARIABLE}='{file}': ")
    assert len(str(refused.value)) < 400


def test_file_that_is_not_utf8_is_a_configuration_error(start, file):
    """A file that is not UTF-8 is refused as such."""
    file.write_bytes(b'thread_pool_name { value: "\xff" }')
    environ = {VARIABLE: str(file)}
    with pytest.raises(SettingsError, match="the file is not UTF-8 text"):
        Settings.from_environment(environ)


def test_variable_overrides_the_file(start):
    """A variable overrides the file, unless it contradicts its batch sizes."""
    made = start(
        "max_batch_size { value: 8 } batch_timeout_micros { value: 5 }\n"
        "max_enqueued_batches { value: 9 }",
        max_batch_size="4",
        batch_timeout_micros="auto",
    )
    assert _limits(made) == {
        "max_batch_size": 4,
        "batch_timeout_micros": None,
        "max_enqueued_batches": 9,
        "allowed_batch_sizes": (),
    }
    with pytest.raises(SettingsError, match=rf"^{VARIABLE}=.* is 8 and .* is 4: "):
        start("allowed_batch_sizes: [2, 8]", max_batch_size="4")


def test_basket_toml_overrides_variable_and_file(start, tmp_path):
    """A model's basket.toml overrides both."""
    made = start(
        "allowed_batch_sizes: [2, 8] batch_timeout_micros { value: 5 }",
        batch_timeout_micros="6",
    )
    (tmp_path / "basket.toml").write_text(
        "allowed_batch_sizes = [4]\nbatch_timeout_micros = 7"
    )
    assert _limits(read_model_config(tmp_path, made).settings) == {
        "max_batch_size": 4,
        "batch_timeout_micros": 7,
        "max_enqueued_batches": 16,
        "allowed_batch_sizes": (4,),
    }


def test_fields_without_an_effect_are_noted(file):
    """Each field that is not applied has a note that begins with its name."""
    file.write_text(ALL)
    notes = batching_parameters.read(file).notes
    assert sorted(note.partition(" ")[0] for note in notes) == [
        "enable_large_batch_splitting",
        "max_execution_batch_size",
        "num_batch_threads",
        "pad_variable_length_inputs",
        "thread_pool_name",
    ]
    assert "num_batch_threads is meaningless here" in " ".join(notes)
    file.write_text("max_batch_size { value: 8 } pad_variable_length_inputs: false")
    assert batching_parameters.read(file).notes == []


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 1_000_002))
def test_number_is_accepted_or_refused(start, number):
    """Every number of 64 bits is accepted in its range, and refused beyond it."""
    text = f"max_batch_size {{ value: {number} }}"
    if 1 <= number <= 1_000_000:
        assert start(text).max_batch_size == number
    else:
        with pytest.raises(SettingsError, match=f"max_batch_size = {number}: {NUMBER}"):
            start(text)


PIECES = st.sampled_from(
    [
        *("max_batch_size", "batch_timeout_micros", "allowed_batch_sizes", "value"),
        *("thread_pool_name", "pad_variable_length_inputs", "{", "{", "}", "}", ":"),
        *(":", "[", "]", "<", ">", ",", ";", "#", "\n", "0", "8", "-", "1.5", "1e9999"),
        *("true", "'x'", '"\\xff"', "0xfffffffffffffffff", "[a.b/c.d]", "\0", "é"),
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, max_size=16))
def test_any_text_is_read_or_refused(start, pieces):
    """Any text is read, or refused with the variable's name."""
    said = VARIABLE
    try:
        start(" ".join(pieces))
    except SettingsError as refusal:
        said = str(refusal)
    assert said.startswith(VARIABLE)
