"""The rows to compare on: captured ones, EXAMPLE, random ones, labeled ones."""

import json

import numpy as np
import pytest

from app.capture.blocks import encode
from app.capture.captured import JSON, Captured, grouped
from app.capture.ring import Ring
from app.engines.base import DEFAULT_SIGNATURE
from app.engines.python.engine import PythonEngine
from app.engines.python.service import Service
from app.promotion.comparison import compare
from app.promotion.replay_rows import replay_rows
from app.settings import Settings
from app.settings.promotion_config import PromotionConfig
from tests.support.engines import Computes
from tests.support.promotion import of_engine, side, signature

SETTINGS = Settings(max_batch_size=32)
CONFIG = PromotionConfig(replay=10)
OLD = side(1, lambda x: x)


def request(number, rows=1, **changes):
    """Return a request answered at that second; its rows are n, n + 0.01 and so on."""
    values = number + 0.01 * np.arange(rows)
    x = np.repeat(values[:, np.newaxis], 10, axis=1).astype(np.float32)
    about = (rows, 1e9 + number, f"id-{number}", 1, 2 * rows, 0.1)
    found = Captured(DEFAULT_SIGNATURE, {"x": x}, {"scores": x}, "rows", *about)
    return found._replace(**changes)


def captured(folder, *blocks):
    """Write each list of requests as a block."""
    ring = Ring(folder / "captured")
    folder.mkdir(exist_ok=True)
    for requests in blocks:
        ring.add(encode(grouped(requests)), 100_000_000)
    return folder / "captured"


def firsts(rows):
    """Return the first value of each row, and all request ids."""
    (group,) = rows.groups
    values = [round(each, 2) for each in group.inputs["x"][:, 0].tolist()]
    return values, list(group.request_ids)


def test_captured_rows_are_the_newest_and_spread(tmp_path):
    """Of 60 requests: the five newest, and five over the time before."""
    blocks = [[request(n) for n in range(start, start + 20)] for start in (0, 20, 40)]
    folder = captured(tmp_path, *blocks)
    rows = replay_rows(OLD, CONFIG, SETTINGS, folder)
    values, ids = firsts(rows)
    assert values == [59, 58, 57, 56, 55, 54, 40, 27, 14, 0]
    assert ids[0] == "id-59"
    assert rows.described == "10 captured rows"
    assert (rows.largest_batch, rows.batch_sizes[-1]) == (2, 32)


@pytest.mark.parametrize("number", [59, 40, 30, 1])
def test_rows_are_the_same_after_a_clock_is_set_back(tmp_path, number):
    """Blocks count up, so that the newest requests are known without a clock."""
    requests = [request(n) for n in range(60)]
    for n in range(number, 60):
        requests[n] = request(n, answered_at=1e9 + n - 3600)
    folder = captured(tmp_path, requests[:20], requests[20:40], requests[40:])
    values, _ = firsts(replay_rows(OLD, CONFIG, SETTINGS, folder))
    assert values == [59, 58, 57, 56, 55, 54, 40, 27, 14, 0]


def test_each_request_gives_a_row_before_any_gives_two(tmp_path):
    """Six rows of the second request fill what the first one leaves."""
    folder = captured(tmp_path, [request(1, rows=2), request(2, rows=20)])
    rows = replay_rows(OLD, CONFIG, SETTINGS, folder)
    assert firsts(rows)[0] == [
        2.0,
        1.0,
        2.01,
        1.01,
        *(2 + n / 100 for n in range(2, 8)),
    ]
    assert rows.largest_batch == 32


def test_all_captured_signatures_and_shapes_count(tmp_path):
    """Requests of two shapes and two signatures are three groups."""
    old = side(1, lambda x: x, spec=signature((None,)))
    signatures = {**old.signatures, "other": signature()}
    old = type(old)(1, signatures, None, old.run)
    short = {"x": np.zeros((1, 3), np.float32)}
    requests = [
        request(1),
        request(2, inputs=short),
        request(3, signature_name="other"),
    ]
    rows = replay_rows(old, CONFIG, SETTINGS, captured(tmp_path, requests))
    assert sorted((g.signature_name, g.inputs["x"].shape) for g in rows.groups) == [
        ("other", (1, 10)),
        ("serving_default", (1, 3)),
        ("serving_default", (1, 10)),
    ]


def test_requests_that_the_serving_version_does_not_take_are_left_out(tmp_path):
    """Another signature, dtype, shape or form, of an older version."""
    numbers = np.zeros((1, 10), np.float32)
    requests = [
        request(1),
        request(2, signature_name="gone"),
        request(3, inputs={"y": numbers}),
        request(4, inputs={"x": numbers.astype(bool)}),
        request(5, inputs={"x": numbers[:, :4]}),
        request(6, form="whole"),
        request(7, form=JSON, inputs={"json": np.array([b"1"], object)}),
    ]
    rows = replay_rows(OLD, CONFIG, SETTINGS, captured(tmp_path, requests))
    assert firsts(rows) == ([1.0], ["id-1"])


def truncated(content):
    return content[: len(content) // 2]


def without_rows(content):
    """Return a block whose tensors have fewer rows than its requests."""
    inputs = {"x": np.zeros((1, 10), np.float32)}
    return encode(grouped([request(1, inputs=inputs)._replace(rows=3)]))


@pytest.mark.parametrize(
    "damage",
    [truncated, without_rows, lambda _: b"", lambda _: b"PK foreign" * 100],
    ids=["truncated", "other numbers of rows", "empty", "foreign"],
)
def test_damaged_files_are_notes(tmp_path, damage):
    """The others are read, and foreign names are left alone."""
    folder = captured(tmp_path, [request(1)], [request(2)])
    block = folder / "000000000002.npz"
    block.write_bytes(damage(block.read_bytes()))
    (folder / "foreign.npz").write_text("foreign")
    (folder / "000000000003.npz").mkdir()
    rows = replay_rows(OLD, CONFIG, SETTINGS, folder)
    assert firsts(rows) == ([1.0], ["id-1"])
    (note,) = rows.notes
    assert note.startswith("000000000002.npz is skipped: ")


@pytest.mark.parametrize("name", ["captured", "none", "file"])
def test_rows_are_random_without_captured_ones(tmp_path, name):
    """As many as are wanted; no folder and a file are as an empty one."""
    (tmp_path / "captured").mkdir()
    (tmp_path / "file").touch()
    rows = replay_rows(OLD, CONFIG, SETTINGS, tmp_path / name)
    assert (rows.described, len(rows)) == ("10 random rows", 10)
    assert rows.largest_batch == 32


def test_model_that_refuses_random_rows_has_none():
    """The reason is a note."""

    def refuses(x):
        raise ValueError("no picture")

    rows = replay_rows(side(1, refuses), CONFIG, SETTINGS, None)
    (note,) = rows.notes
    assert len(rows) == 0
    assert note.endswith("the model refuses random rows: ValueError: no picture")


@pytest.fixture(name="service")
def _service(tmp_path):
    """Open a service.py without a model file as a version."""
    engines = []

    def opened(version, text):
        folder = tmp_path / str(version)
        folder.mkdir()
        (folder / "service.py").write_text(text)
        engine = PythonEngine(Service(folder), None, packed=False)
        engines.append(engine)
        return of_engine(version, engine)

    yield opened
    for engine in engines:
        engine.close()


CODE = """
EXAMPLE = {"words": 3}

def preprocess(instance):
    return instance["words"]

def predict(model, batch):
    return [{"kind": "%s" if n == 3 else "b", "score": n * %s} for n in batch]
"""


def instances(*values):
    texts = np.array([json.dumps({"words": each}).encode() for each in values], object)
    return {"json": texts}


@pytest.mark.parametrize(
    ("kind", "factor", "refusal"),
    [
        ("a", "0.1", ""),
        ("a", "0.1001", ""),
        ("c", "0.1", "agrees in 2 of 3 rows"),
        ("a", "0.2", "agrees in 0 of 3 rows"),
        ("a", "float('nan')", "answers NaN or infinity in 3 of 3 rows"),
        ("a", "0.1 / (n - 4)", "fails on 1 of 3 rows: ZeroDivisionError: "),
    ],
)
def test_captured_instances_are_compared_as_json(
    tmp_path, service, kind, factor, refusal
):
    """Text is equal, and floats are within 1 %, behind service.py of both."""
    old, new = service(1, CODE % ("a", "0.1")), service(2, CODE % (kind, factor))
    request_ = request(1, rows=3, form=JSON, inputs=instances(3, 4, 5))
    rows = replay_rows(old, CONFIG, SETTINGS, captured(tmp_path, [request_]))
    assert rows.described == "3 captured rows"
    found = compare(old, new, rows, CONFIG).refusal()
    assert found.startswith(refusal) if refusal else found == ""


def test_example_is_used_without_captured_instances(service):
    """It goes through preprocess of each version."""
    old = service(1, CODE % ("a", "0.1"))
    rows = replay_rows(old, CONFIG, SETTINGS, None)
    assert (rows.described, len(rows)) == ("EXAMPLE of service.py", 1)
    new = service(2, CODE.replace('["words"]', '["word"]') % ("a", "0.1"))
    refusal = compare(old, new, rows, CONFIG).refusal()
    assert refusal == "fails on 1 of 1 rows: KeyError: 'word'"


def test_service_without_example_has_no_rows(service):
    """No random object is one of its instances."""
    old = service(1, CODE.replace("EXAMPLE", "OTHER") % ("a", "0.1"))
    rows = replay_rows(old, CONFIG, SETTINGS, None)
    assert (len(rows), rows.notes) == (0, ["service.py has no EXAMPLE"])


def test_version_that_takes_instances_has_another_signature(service):
    """Rows of arrays are not run through it."""
    rows = replay_rows(OLD, CONFIG, SETTINGS, None)
    refusal = compare(OLD, service(2, CODE % ("a", "0.1")), rows, CONFIG).refusal()
    assert refusal == (
        "signature changed: it takes instances for its service.py, and version 1 arrays"
    )


def test_captured_rows_are_not_run_behind_a_new_preprocess(tmp_path):
    """They are what clients sent, and the new model wants what preprocess makes."""
    (tmp_path / "service.py").write_text("def preprocess(instance):\n    return [9]\n")
    model = Computes(lambda batch: {"scores": batch["x"]}, signature())
    new = of_engine(2, PythonEngine(Service(tmp_path), model, packed=False))
    config = PromotionConfig(require_same_signature=False)
    found = compare(OLD, new, replay_rows(OLD, CONFIG, SETTINGS, None), config)
    assert (found.fitting_rows, found.refusal()) == (0, "")
