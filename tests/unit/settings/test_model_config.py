"""A model's basket.toml: precedence over the server's settings, and errors."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import SettingsError
from app.settings import Settings
from app.settings.model_config import CaptureConfig, ModelConfig, read_model_config
from app.settings.promotion_config import PromotionConfig

MANY_DIGITS = "9" * 5000
UNPRINTABLE = "0x" + "f" * 5000
NUMBER = "expected a whole number from"

BAD = {
    "zero": ("max_batch_size = 0", f"max_batch_size = 0: {NUMBER} 1 to 1000000"),
    "a bool": ("max_batch_size = true", f"max_batch_size = true: {NUMBER}"),
    "a fraction": ("max_batch_size = 6.4", f"max_batch_size = 6.4: {NUMBER}"),
    "infinity": ("max_batch_size = inf", f"max_batch_size = inf: {NUMBER}"),
    "a string": ('max_batch_size = "8"', f"max_batch_size = '8': {NUMBER}"),
    "a word": ('max_batch_size = "auto"', f"max_batch_size = 'auto': {NUMBER}"),
    "an array": ("max_batch_size = [8]", f"max_batch_size = [8]: {NUMBER}"),
    "a table": ("[max_batch_size]", "max_batch_size = {}: "),
    "a date": ("max_batch_size = 2026-11-21", "max_batch_size = 2026-11-21: expected"),
    "huge": (f"max_batch_size = {'9' * 400}", f"max_batch_size = {'9' * 80}...: "),
    "many digits": (f"max_batch_size = {MANY_DIGITS}", "5000 digits"),
    "more than is printed": (
        f"[image]\nsize = {UNPRINTABLE}",
        "Exceeds the limit (4300 digits)",
    ),
    "negative": ("batch_timeout_micros = -1", f"batch_timeout_micros = -1: {NUMBER} 0"),
    "another word": ('batch_timeout_micros = "soon"', "= 'soon': expected"),
    "a number of sizes": (
        "allowed_batch_sizes = 8",
        "allowed_batch_sizes = 8: expected a list of whole numbers",
    ),
    "a size of zero": ("allowed_batch_sizes = [0, 8]", f"= [0, 8]: {NUMBER} 1"),
    "a bool among sizes": ("allowed_batch_sizes = [true]", f"= [true]: {NUMBER} 1"),
    "sizes within sizes": ("allowed_batch_sizes = [[8]]", f"= [[8]]: {NUMBER} 1"),
    "the same size twice": (
        "allowed_batch_sizes = [8, 8]",
        "= [8, 8]: each number must be larger than the one before",
    ),
    "sizes that fall": ("allowed_batch_sizes = [8, 4]", "= [8, 4]: each number must"),
    "sizes that end elsewhere": (
        "max_batch_size = 16\nallowed_batch_sizes = [4, 8]",
        "the last of allowed_batch_sizes is 8 and max_batch_size is 16: they must be",
    ),
    "a misspelt key": (
        "max_batchsize = 8",
        "unknown key 'max_batchsize'; known: max_batch_size, batch_timeout_micros, "
        "allowed_batch_sizes, engine, constants, labels, traffic",
    ),
    "constants as a value": ("constants = 1", "constants = 1: expected a table"),
    "a constant of a date": (
        "[constants]\nday = 2026-11-21",
        "day: expected true, false, a finite number, text, or lists of these",
    ),
    "a constant of NaN": ("[constants]\nx = [0, nan]", "x: expected true, false, a f"),
    "a table of constants": ("[constants.x]\ny = 1", "x: expected true, false, a fi"),
    "an unknown engine": (
        'engine = "torch"',
        "engine = 'torch': expected tensorflow or jax or openvino",
    ),
    "a key of the server": ("api_keys = 'open'", "unknown key 'api_keys'"),
    "no TOML": ("max_batch_size: 8", "line 1"),
    "deep": (f"labels = {'[' * 100_000}", "recursion"),
    "labels as a value": ("labels = 1", "labels must be a table: [labels]"),
    "traffic as an array": ("traffic = [1]", "traffic must be a table: [traffic]"),
    "tables of labels": ("[[labels]]", "labels must be a table: [labels]"),
    "an empty label": ('[labels]\n"" = 1', "[labels] '': a label has neither"),
    "a label with a slash": ('[labels]\n"a/b" = 1', "[labels] 'a/b': a label has"),
    "a label with a colon": ('[labels]\n"a:b" = 1', "[labels] 'a:b': a label has"),
    "a label of a name": (
        '[labels]\nstable = "1"',
        "[labels] stable = '1': expected the number of a version",
    ),
    "a label of a bool": (
        "[labels]\nstable = true",
        "[labels] stable = true: expected",
    ),
    "a label below zero": ("[labels]\nstable = -1", "[labels] stable = -1: expected"),
    "a label above int64": (
        f"[labels]\nstable = {2**63}",
        f"[labels] stable = {2**63}: expected the number of a version",
    ),
    "a label of a date": ("[labels]\nstable = 2026-11-21", "expected the number"),
    "a label of too much": (
        f"[labels]\nstable = {UNPRINTABLE}",
        "Exceeds the limit (4300 digits)",
    ),
    "traffic without a label": (
        "[labels]\nstable = 1\n[traffic]\ncanary = 1",
        "[traffic] canary: there is no such label in [labels]",
    ),
    "a weight below zero": (
        "[labels]\nstable = 1\n[traffic]\nstable = -0.5",
        "[traffic] stable = -0.5: expected a weight, 0 or more",
    ),
    "a weight of NaN": (
        "[labels]\nstable = 1\n[traffic]\nstable = nan",
        "[traffic] stable = nan: expected a weight",
    ),
    "an endless weight": (
        "[labels]\nstable = 1\n[traffic]\nstable = inf",
        "[traffic] stable = inf: expected a weight",
    ),
    "a weight of a bool": (
        "[labels]\nstable = 1\n[traffic]\nstable = true",
        "[traffic] stable = true: expected a weight",
    ),
    "a weight of too much": (
        f"[labels]\nstable = 1\n[traffic]\nstable = {UNPRINTABLE}",
        "Exceeds the limit (4300 digits)",
    ),
    "capture as a value": ("capture = true", "capture must be a table: [capture]"),
    "a misspelt key of capture": (
        "[capture]\nshares = 1",
        "[capture] unknown key 'shares'; known: share, keep_mb",
    ),
    "a share above 1": ("[capture]\nshare = 1.5", "share = 1.5: expected a number fr"),
    "a share below 0": ("[capture]\nshare = -0.1", "share = -0.1: expected a number"),
    "a share of NaN": ("[capture]\nshare = nan", "share = nan: expected a number"),
    "a share of a bool": ("[capture]\nshare = true", "share = true: expected a number"),
    "a share of text": ('[capture]\nshare = "1"', "share = '1': expected a number"),
    "no megabyte": ("[capture]\nkeep_mb = 0", f"keep_mb = 0: {NUMBER} 1 to 1000000"),
    "an unknown key of promotion": (
        "[promotion]\nrows = 1",
        "[promotion] unknown key 'rows'; known: replay, min_agreement",
    ),
    "no row to replay": (
        "[promotion]\nreplay = 0",
        f"replay = 0: {NUMBER} 1 to 100000",
    ),
    "agreement in percent": (
        "[promotion]\nmin_agreement = 98",
        "min_agreement = 98: expected a number from 0 to 1",
    ),
    "a slowdown below 1": (
        "[promotion]\nmax_slowdown = 0.5",
        "max_slowdown = 0.5: expected a number from 1 to 1000",
    ),
    "no list of steps": ("[promotion]\nsteps = 10", "steps = 10: expected a list of"),
    "no step": (
        "[promotion]\nsteps = []",
        "steps = []: expected a list of percentages",
    ),
    "a step of nothing": ("[promotion]\nsteps = [0, 100]", "expected a number above 0"),
    "steps that fall": ("[promotion]\nsteps = [50, 10, 100]", "must be larger than"),
    "steps that end early": ("[promotion]\nsteps = [1, 50]", "last step must be 100"),
    "a step of no time": ("[promotion]\nstep_s = 0", "expected a number above 0 to"),
    "a word for true": (
        '[promotion]\nrequire_same_signature = "yes"',
        "expected true or false",
    ),
    "half a megabyte": ("[capture]\nkeep_mb = 0.5", f"keep_mb = 0.5: {NUMBER}"),
    "weights of nothing": (
        "[labels]\na = 1\nb = 2\n[traffic]\na = 0\nb = 0.0",
        "[traffic] has no weight above 0",
    ),
}


@pytest.fixture(name="read")
def _read(tmp_path):
    """Read a text as a model's basket.toml."""

    def read(text, server=None):
        (tmp_path / "basket.toml").write_text(text, encoding="utf-8")
        return read_model_config(tmp_path, server or Settings())

    return read


def test_missing_or_empty_file(tmp_path):
    """A model without basket.toml, or with an empty one, has the server's settings."""
    server = Settings(max_batch_size=7)
    assert read_model_config(tmp_path, server) == ModelConfig(server, {}, {})
    (tmp_path / "basket.toml").touch()
    assert read_model_config(tmp_path, server) == ModelConfig(server, {}, {})


@pytest.mark.parametrize(
    ("text", "promotion"),
    [
        ("", None),
        ("[promotion]", PromotionConfig()),
        (
            "[promotion]\nsteps = [1, 10, 100]\nstep_s = 5",
            PromotionConfig(steps=(1.0, 10.0, 100.0), step_s=5.0),
        ),
    ],
)
def test_promotion_is_off_without_a_table(read, text, promotion):
    """Each key is optional."""
    assert read(text).promotion == promotion


@pytest.mark.parametrize(
    ("text", "capture"),
    [
        ("[capture]", CaptureConfig(0.01, 100)),
        ("[capture]\nshare = 1\nkeep_mb = 5", CaptureConfig(1.0, 5)),
        ("[capture]\nshare = 0.0", None),
        ("", None),
    ],
)
def test_capture_is_off_without_a_table_or_a_share(read, text, capture):
    """An empty table turns it on, with the defaults."""
    assert read(text).capture == capture


def test_limits_override_the_servers(read):
    """A model's limits override the server's, also with auto."""
    text = "max_batch_size = 8\nbatch_timeout_micros = 2000 # größer\n"
    server = Settings(max_batch_size=7, request_timeout_ms=9, api_keys=("k",))
    assert read(text, server).settings == Settings(
        max_batch_size=8,
        batch_timeout_micros=2000,
        request_timeout_ms=9,
        api_keys=("k",),
    )
    server = Settings(batch_timeout_micros=5)
    own = read('batch_timeout_micros = "auto"', server).settings
    assert own.batch_timeout_micros is None


@pytest.mark.parametrize(
    "text",
    ["allowed_batch_sizes = [1, 8]\nmax_batch_size = 8", "allowed_batch_sizes = [1,8]"],
    ids=["with the largest batch", "alone"],
)
def test_allowed_batch_sizes_set_max_batch_size(read, text):
    """The last of the allowed sizes is max_batch_size, given or not."""
    own = read(text, Settings(max_batch_size=7)).settings
    assert own == Settings(allowed_batch_sizes=(1, 8), max_batch_size=8)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("allowed_batch_sizes = [2, 4]", ((2, 4), 4)),
        ("allowed_batch_sizes = []\nmax_batch_size = 5", ((), 5)),
    ],
    ids=["other sizes", "any size"],
)
def test_allowed_batch_sizes_override_the_servers(read, text, expected):
    """A model's allowed sizes replace the server's, and so does the largest batch."""
    server = Settings(allowed_batch_sizes=(1, 64), max_batch_size=64)
    own = read(text, server).settings
    assert (own.allowed_batch_sizes, own.max_batch_size) == expected


@pytest.mark.parametrize(
    ("most", "sizes"),
    [
        (1, (1,)),
        (5, (2, 4, 5)),
        (8, (2, 4, 8)),
        (64, (2, 4, 8, 64)),
        (100, (2, 4, 8, 64, 100)),
    ],
)
def test_max_batch_size_without_sizes_is_the_last_of_the_servers(read, most, sizes):
    """The server's smaller sizes stay, so that its batching file refuses no model."""
    server = Settings(allowed_batch_sizes=(2, 4, 8, 64), max_batch_size=64)
    own = read(f"max_batch_size = {most}", server).settings
    assert (own.allowed_batch_sizes, own.max_batch_size) == (sizes, most)


def test_constants_of_other_types_are_other_settings(read):
    """A model is loaded again for false in place of 0, which Python calls equal."""
    texts = ["x = 0", "x = false", "x = 0.0", 'x = "0"', "x = [0]"]
    found = {read(f"[constants]\n{text}").settings for text in texts}
    assert len(found) == len(texts)
    assert read("[constants]").settings == Settings()


def test_labels_and_traffic(read):
    """Labels name versions, and traffic gives them weights, whole or not."""
    config = read(
        "[labels]\nstable = 1\ncanary = 2\nold = 1\n[traffic]\nstable = 99.5\ncanary=0"
    )
    assert config.labels == {"stable": 1, "canary": 2, "old": 1}
    assert config.traffic == {"stable": 99.5, "canary": 0}


@pytest.mark.parametrize(("text", "problem"), BAD.values(), ids=BAD)
def test_invalid_value_is_a_configuration_error(read, text, problem):
    """The error has the key, its value and the reason."""
    with pytest.raises(SettingsError) as refused:
        read(text)
    assert str(refused.value).startswith("basket.toml: ")
    assert problem in str(refused.value)
    assert len(str(refused.value)) < 300


def test_file_that_is_not_utf8_is_a_configuration_error(tmp_path):
    """A basket.toml that is not UTF-8 is refused as one that is not TOML."""
    (tmp_path / "basket.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"^basket.toml: .*utf-8"):
        read_model_config(tmp_path, Settings())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda file: file.mkdir(), "Is a directory", id="a folder"),
        pytest.param(
            lambda file: file.symlink_to(file.name), "Too many levels", id="a loop"
        ),
    ],
)
def test_unreadable_file_is_a_configuration_error(tmp_path, make, reason):
    """The error has the reason, and no path."""
    make(tmp_path / "basket.toml")
    with pytest.raises(SettingsError, match=rf"^basket.toml: {reason}") as refused:
        read_model_config(tmp_path, Settings())
    assert str(tmp_path) not in str(refused.value)


LEAVES = st.sampled_from(
    [
        *("0", "1", "8", "-1", "1e400", "1.5", "nan", "true", '"auto"', '"L"', '""'),
        *("2026-11-21", "12:00:00", "{}", MANY_DIGITS, UNPRINTABLE),
    ]
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda parts: f"[{', '.join(parts)}]")
        | inner.map(lambda part: f"{{a = {part}}}")
    ),
    max_leaves=4,
)
KEYS = st.sampled_from(
    [
        *("max_batch_size", "batch_timeout_micros", "allowed_batch_sizes", "labels"),
        *("traffic", "image", "a", '""', "size", "mode", "scale", "classes"),
    ]
)
LINES = st.sampled_from(["[labels]", "[traffic]", "[image]", "["]) | st.tuples(
    KEYS, VALUES
).map(" = ".join)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(LINES, max_size=5))
def test_any_text_is_read_or_refused(read, lines):
    """Any text is read, or refused with the file's name."""
    said = "basket.toml: "
    try:
        read("\n".join(lines))
    except SettingsError as refusal:
        said = str(refusal)
    assert said.startswith("basket.toml: ")
