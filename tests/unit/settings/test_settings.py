"""Settings from the environment: valid and invalid values of each variable."""

from pathlib import Path

import pytest

from app.errors import SettingsError
from app.settings import Settings, unknown_variables, variables

READ = [
    ("BASKET_MODEL_DIR", ".", Path()),
    ("BASKET_MODEL", "my.keras", Path("my.keras")),
    ("BASKET_MODEL_NAME", "my", "my"),
    ("BASKET_DEFAULT_MODEL", "digits", "digits"),
    ("BASKET_ENGINE", "tensorflow", "tensorflow"),
    ("BASKET_BATCHING", "off", False),
    ("BASKET_BATCHING", "ON", True),
    ("BASKET_MAX_BATCH_SIZE", "1", 1),
    ("BASKET_MAX_BATCH_SIZE", " 128 ", 128),
    ("BASKET_BATCH_TIMEOUT_MICROS", "auto", None),
    ("BASKET_BATCH_TIMEOUT_MICROS", "0", 0),
    ("BASKET_MAX_ENQUEUED_BATCHES", "2", 2),
    ("BASKET_BATCHING_PARAMETERS_FILE", "/dev/null", Path("/dev/null")),
    ("BASKET_GPU_MEMORY_FRACTION", "0.3", 0.3),
    ("BASKET_GPU_MEMORY_FRACTION", ".5", 0.5),
    ("BASKET_GPU_MEMORY_FRACTION", "1", 1.0),
    ("BASKET_GPUS", "all", None),
    ("BASKET_GPUS", "0, 2", (0, 2)),
    ("BASKET_MODEL_PROCESS", "worker", "worker"),
    ("BASKET_MODEL_PROCESS", "shared", "shared"),
    ("BASKET_USER_CODE", "on", True),
    ("BASKET_READY", "served", "served"),
    ("BASKET_READY", "all", "all"),
    ("BASKET_REQUEST_TIMEOUT_MS", "5", 5),
    ("BASKET_MAX_BODY_BYTES", "1024", 1024),
    ("BASKET_API_KEYS", "one, two", ("one", "two")),
    ("BASKET_API_KEYS_FILE", "keys", Path("keys")),
    ("BASKET_ADMIN_KEYS", "one, two", ("one", "two")),
    ("BASKET_ADMIN_KEYS_FILE", "keys", Path("keys")),
    ("BASKET_GRPC_BIND", "127.0.0.1:8500", "127.0.0.1:8500"),
    ("BASKET_GRPC_BIND", "[::1]:1", "[::1]:1"),
    ("BASKET_GRPC_BIND", "localhost:65535", "localhost:65535"),
    ("BASKET_ALLOWED_HOSTS", "Basket, b_2.Example.com", ("basket", "b_2.example.com")),
    ("BASKET_ALLOWED_ORIGINS", "*", ("*",)),
    (
        "BASKET_ALLOWED_ORIGINS",
        "https://Shop.example:443, http://[::1]:80, http://localhost:3000, tauri://app",
        (
            "https://shop.example",
            "http://[::1]",
            "http://localhost:3000",
            "tauri://app",
        ),
    ),
    ("BASKET_CAPTURE_DIR", "captured", Path("captured")),
    ("BASKET_CAPTURE_DIR", "/tmp", Path("/tmp")),
    ("BASKET_REQUEST_LOG", "-", "-"),
    ("BASKET_REQUEST_LOG", "requests.jsonl", "requests.jsonl"),
    ("BASKET_REQUEST_LOG_SHARE", "0.25", 0.25),
]

BAD = [
    ("BASKET_MODEL_DIR", "no/such/folder", "no such folder"),
    ("BASKET_MODEL_DIR", "x" * 5000, "no such folder"),
    ("BASKET_MODEL_DIR", __file__, "it is a file, not a folder"),
    ("BASKET_MODEL_NAME", "models/digits", "not a path"),
    ("BASKET_USER_CODE", "yes", "expected on or off"),
    ("BASKET_DEFAULT_MODEL", "models/digits", "not a path"),
    ("BASKET_MODEL_NAME", "caf\udce9", "its name is not UTF-8"),
    ("BASKET_MODEL_NAME", "a" * 201, "its name has more than 200 bytes"),
    ("BASKET_DEFAULT_MODEL", "..", "not a path"),
    ("BASKET_ENGINE", "torch", "expected tensorflow or jax or openvino"),
    ("BASKET_BATCHING", "yes", "expected on or off"),
    ("BASKET_MAX_BATCH_SIZE", "0", "from 1 to 1000000"),
    ("BASKET_MAX_BATCH_SIZE", "1000001", "from 1 to 1000000"),
    ("BASKET_MAX_BATCH_SIZE", "-1", "whole number"),
    ("BASKET_MAX_BATCH_SIZE", "6.4", "whole number"),
    ("BASKET_MAX_BATCH_SIZE", "1_000", "whole number"),
    ("BASKET_MAX_BATCH_SIZE", "٣", "whole number"),
    ("BASKET_MAX_BATCH_SIZE", "auto", "whole number"),
    ("BASKET_MAX_BATCH_SIZE", "9" * 5000, "whole number"),
    (
        "BASKET_BATCH_TIMEOUT_MICROS",
        "2ms",
        "whole number from 0 to 3600000000, or auto",
    ),
    ("BASKET_BATCH_TIMEOUT_MICROS", "3600000001", "from 0 to 3600000000"),
    ("BASKET_MAX_ENQUEUED_BATCHES", "0", "from 1"),
    ("BASKET_BATCHING_PARAMETERS_FILE", "no/such/file", "No such file"),
    ("BASKET_BATCHING_PARAMETERS_FILE", ".", "Is a directory"),
    ("BASKET_BATCHING_PARAMETERS_FILE", "/dev/null/file", "Not a directory"),
    ("BASKET_BATCHING_PARAMETERS_FILE", "x" * 5000, "File name too long"),
    ("BASKET_GPU_MEMORY_FRACTION", "0", "above 0"),
    ("BASKET_GPU_MEMORY_FRACTION", "1.01", "up to 1"),
    ("BASKET_GPU_MEMORY_FRACTION", "nan", "a number"),
    ("BASKET_GPU_MEMORY_FRACTION", "1e-1", "a number"),
    ("BASKET_GPU_MEMORY_FRACTION", "50%", "a number"),
    ("BASKET_GPUS", "0,", "GPU numbers"),
    ("BASKET_GPUS", "-1", "GPU numbers"),
    ("BASKET_GPUS", "0;1", "GPU numbers"),
    ("BASKET_GPUS", "1,1", "named twice"),
    ("BASKET_MODEL_PROCESS", "thread", "expected worker"),
    ("BASKET_READY", "any", "expected served or all"),
    ("BASKET_REQUEST_TIMEOUT_MS", "0", "from 1"),
    ("BASKET_MAX_BODY_BYTES", "64MiB", "whole number"),
    ("BASKET_API_KEYS", "one,,two", "an empty key"),
    ("BASKET_API_KEYS", "schlüssel", "no HTTP header"),
    ("BASKET_ADMIN_KEYS", "one,", "an empty key"),
    ("BASKET_GRPC_BIND", "8500", "expected host:port, such as 127.0.0.1:8500 or [::1]"),
    ("BASKET_GRPC_BIND", ":8500", "expected host:port"),
    ("BASKET_GRPC_BIND", "::1:8500", "expected host:port"),
    ("BASKET_GRPC_BIND", "[localhost]:8500", "expected host:port"),
    ("BASKET_GRPC_BIND", "unix:/run/basket", "expected host:port"),
    ("BASKET_GRPC_BIND", "http://a:8500", "expected host:port"),
    ("BASKET_GRPC_BIND", "a:0", "expected host:port"),
    ("BASKET_GRPC_BIND", "a:65536", "expected host:port"),
    ("BASKET_GRPC_BIND", "a:٣", "expected host:port"),
    ("BASKET_GRPC_BIND", "a:-1", "expected host:port"),
    ("BASKET_ALLOWED_HOSTS", "a,,b", "expected names of hosts"),
    ("BASKET_ALLOWED_HOSTS", "https://a", "expected names of hosts"),
    ("BASKET_ALLOWED_HOSTS", "a:8000", "expected names of hosts"),
    ("BASKET_ALLOWED_HOSTS", "a.", "expected names of hosts"),
    ("BASKET_ALLOWED_HOSTS", "*", "expected names of hosts"),
    ("BASKET_ALLOWED_ORIGINS", "shop.example", "expected origins with a scheme"),
    ("BASKET_ALLOWED_ORIGINS", "https://a/", "without a path"),
    ("BASKET_ALLOWED_ORIGINS", "https://*.a", "expected origins"),
    ("BASKET_ALLOWED_ORIGINS", "null", "expected origins"),
    ("BASKET_ALLOWED_ORIGINS", "*, https://a", "or * alone"),
    ("BASKET_CAPTURE_DIR", __file__, "it is a file, not a folder"),
    ("BASKET_CAPTURE_DIR", "no/such/folder", "no such folder"),
    ("BASKET_REQUEST_LOG", ".", "it is a folder, not a file"),
    ("BASKET_REQUEST_LOG", "no/such/file", "no such folder"),
    ("BASKET_REQUEST_LOG_SHARE", "0", "above 0"),
]
# They are read when the server starts: test_key_file.py, test_model_source.py.
FILES = {"BASKET_API_KEYS_FILE", "BASKET_ADMIN_KEYS_FILE", "BASKET_MODEL"}


def _field(variable: str) -> str:
    return variable.removeprefix("BASKET_").lower()


@pytest.mark.parametrize(
    ("variable", "text", "value"), READ, ids=[f"{case[0]}={case[1]}" for case in READ]
)
def test_valid_value_sets_its_field(variable, text, value):
    """A valid value of a variable sets its own field, and no other."""
    read = Settings.from_environment({variable: text, "OTHER": "1"})
    assert read == Settings(**{_field(variable): value})
    assert type(getattr(read, _field(variable))) is type(value)


@pytest.mark.parametrize(
    ("cases", "missing"), [(READ, set()), (BAD, FILES)], ids=["read", "bad"]
)
def test_every_setting_has_a_case(cases, missing):
    """The tables above have all settings."""
    assert {case[0] for case in cases} == set(variables()) - missing


@pytest.mark.parametrize("variable", ["BASKET_API_KEYS", "BASKET_ADMIN_KEYS"])
def test_keys_in_a_variable_and_in_a_file_are_a_configuration_error(variable):
    """Nobody can tell which of the two was meant."""
    environ = {variable: "s3cret", f"{variable}_FILE": "keys"}
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment(environ)
    text = f"{variable} and {variable}_FILE are both set: keep one"
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("variable", "text", "problem"),
    BAD,
    ids=[f"{variable}={text[:12]}" for variable, text, _ in BAD],
)
def test_invalid_value_is_a_configuration_error(variable, text, problem):
    """The error has the variable's name and the reason."""
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({variable: text})
    assert str(raised.value).startswith(variable)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["", "  "], ids=["empty", "blank"])
def test_empty_variable_is_not_set(text):
    """An empty or blank variable counts as not set, for every setting."""
    environ = dict.fromkeys(variables(), text)
    assert Settings.from_environment(environ) == Settings()


@pytest.mark.parametrize("name", ["api_keys", "admin_keys"])
@pytest.mark.parametrize("text", ["s3cret,,", "s3cret,ü"], ids=["empty", "not-ascii"])
def test_keys_are_never_shown(name, text):
    """Neither an error with its causes, nor the repr of Settings, has a key."""
    with pytest.raises(SettingsError) as raised:
        Settings.from_environment({f"BASKET_{name.upper()}": text})
    error: BaseException | None = raised.value
    while error:
        assert "s3cret" not in repr(error)
        error = error.__cause__
    assert "s3cret" not in repr(Settings(**{name: ("s3cret",)}))


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("BASKET_MAX_BATCHSIZE", "; did you mean BASKET_MAX_BATCH_SIZE?"),
        ("BASKET_GPU", "; did you mean BASKET_GPUS?"),
        ("BASKET_max_batch_size", ""),
        (
            "BASKET_ALLOWED_BATCH_SIZES",
            ": it stands in basket.toml or in BASKET_BATCHING_PARAMETERS_FILE",
        ),
        ("BASKET_CONSTANTS", ": it stands in basket.toml"),
        ("BASKET_PORT", ""),
        ("BASKET_SERVICE_HOST", ""),
    ],
)
def test_unknown_variable_is_reported(variable, hint):
    """An unknown BASKET_ variable gets a line with the most similar setting."""
    assert unknown_variables({variable: "1", "BASKET_GPUS": "0", "PATH": "/"}) == [
        f"{variable} is not a setting of Basket{hint}"
    ]


def test_missing_model_folder_is_a_configuration_error(monkeypatch, tmp_path):
    """Without one of two settings the folder `models` must exist."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match=r"BASKET_MODEL_DIR are not set"):
        Settings.from_environment({})
    (tmp_path / "models").mkdir()
    assert Settings.from_environment({}) == Settings()
