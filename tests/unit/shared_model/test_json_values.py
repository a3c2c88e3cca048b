"""Values that cross processes as JSON, and are the same on the other side."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from app.batching.model_log import ModelLog
from app.engines.base import Signature, TensorSpec
from app.engines.python.service import Service
from app.errors import (
    ModelFailed,
    NotReady,
    QueueFull,
    RefusedInput,
    Stopping,
    TooLarge,
)
from app.repository.routing import Rollout, Routes
from app.repository.served import Model, ServedModel, State, Version
from app.settings import Settings
from app.settings.image_config import ImageClass, ImageConfig
from app.settings.model_config import CaptureConfig, ModelConfig
from app.shared_model.frames import Frame, decode, encode, sizes
from app.shared_model.json_values import error_from_json, error_to_json, from_json
from app.shared_model.published_catalog import (
    CatalogState,
    PublishedModel,
    PublishedVersion,
)
from app.user_code.user_code import UserCode
from tests.support.engines import Echo

IMAGE = ImageConfig(
    size=(2, 3),
    mode="RGB",
    scale="0..1",
    interpolation="nearest",
    classes=(ImageClass("0", "tent"), ImageClass("1", 'a "quoted" näme')),
)
SIGNATURE = Signature(
    inputs=(
        TensorSpec("x", np.dtype("float32"), (None, 3), "bfloat16"),
        TensorSpec("s", np.dtype(object), (), any_rank=True),
    ),
    outputs=(TensorSpec("y", np.dtype("int64"), ()),),
    fixed_batch_size=4,
    limit_reason="as a test",
    padded_sizes=(1, 4),
)


def _crossed(value):
    """Return the JSON of a value after it was sent in a frame."""
    whole = b"".join(encode(Frame({"value": value})))
    return decode(memoryview(whole), sizes(whole)[0]).meta["value"]


def test_catalog_crosses_with_all_that_describes_a_model():
    """Versions in each state, settings, labels, classes, captures and rollouts."""
    own = Settings(
        max_batch_size=8, allowed_batch_sizes=(4, 8), constants='{"train": false}'
    )
    config = ModelConfig(own, {"stable": 1}, {"stable": 2.0}, IMAGE)
    served = ServedModel(
        name="m",
        version=3,
        platform="echo",
        signatures={"serving_default": SIGNATURE},
        config=config,
        runner=None,
        observer=None,
    )
    model = Model(
        versions={
            3: Version(State.AVAILABLE, served=served),
            2: Version(State.END, "no such file: \udcff"),
            1 << 40: Version(State.LOADING),
        },
        routes=Routes({"stable": 1, "new": 2}, {"stable": 0.1, "new": 1e-300}),
        rollout=Rollout(2, 3, 12.5, 7, "key"),
        capture=CaptureConfig(0.25, 3),
        problem="a problem",
        settled=True,
    )
    models = {"m": PublishedModel.of(model), "ünloaded": PublishedModel.of(Model())}
    state = CatalogState(models, "a folder problem")
    assert from_json(CatalogState, _crossed(state)) == state


def test_values_cross_by_their_type_hints():
    """What JSON lacks is made by the hints: tuples, paths, dtypes, enums, None."""

    @dataclass(frozen=True)
    class Record:
        """Has a field of each kind."""

        path: Path | None
        state: State
        rollouts: tuple[Rollout, ...]
        size: tuple[int, float]
        dtype: np.dtype[np.generic]
        inner: ImageConfig | None = None

    record = Record(
        path=Path("/a/\udce9 b"),
        state=State.END,
        rollouts=(Rollout(1), Rollout(2, 3, 0.1)),
        size=(1, 0.1),
        dtype=np.dtype("<U3"),
        inner=IMAGE,
    )
    assert from_json(Record, _crossed(record)) == record
    empty = replace(record, path=None, rollouts=(), inner=None)
    assert from_json(Record, _crossed(empty)) == empty


def test_only_the_models_own_settings_are_published():
    """Keys are the server's."""
    settings = Settings(max_batch_size=8, api_keys=("secret",), engine="jax")
    served = ServedModel(
        "m", 1, "echo", {}, config=ModelConfig(settings), runner=None, observer=None
    )
    crossed = _crossed(PublishedVersion.of(served))
    assert crossed["config"]["settings"]["max_batch_size"] == 8
    assert "secret" not in json.dumps(crossed)


@pytest.mark.parametrize(
    "error",
    [
        QueueFull("no room", 7),
        TooLarge("too many rows"),
        ModelFailed("the model failed"),
        RefusedInput("no such id"),
        Stopping("going"),
        NotReady("loading", 3),
    ],
)
def test_error_crosses_with_class_text_and_retry_after(error):
    """An error of Basket's is the same on the other side."""
    rebuilt = error_from_json(_crossed(error_to_json(error)))
    assert type(rebuilt) is type(error)
    assert str(rebuilt) == str(error)
    assert vars(rebuilt) == vars(error)


def test_unknown_error_crosses_without_details():
    """A foreign error, or one of an unknown class, is an internal error."""
    values = error_to_json(ValueError("/secret/path"))
    assert "secret" not in str(error_from_json(values))
    for unknown in ("NoSuchClass", "SettingsError", "GRPC_CODES"):
        assert error_from_json({**values, "error": unknown}).status == 500


@pytest.mark.parametrize(
    ("code", "crosses"),
    [("import json", False), ("EXAMPLE = 1", True), ("def load(folder): ...", True)],
)
def test_service_that_only_imports_does_so_in_the_model_process(
    tmp_path, code, crosses
):
    """Web workers do not import a framework's operations."""
    (tmp_path / "service.py").write_text(code)
    signatures = Echo().signatures
    user_code = UserCode(
        Service(tmp_path), signatures, ModelLog("m", 1), is_packed=True
    )
    served = ServedModel(
        name="m",
        version=1,
        platform="echo",
        signatures=signatures,
        config=ModelConfig(Settings()),
        runner=None,
        observer=None,
        user_code=user_code,
    )
    found = PublishedVersion.of(served).service
    assert found == (tmp_path if crosses else None)
