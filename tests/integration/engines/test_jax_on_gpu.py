"""The JAX engine on a real GPU: its memory, its share of it, and its precision."""

import json
import os
import shutil
from collections.abc import Iterator
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from app import gpus
from testing.processes import run_python
from testing.server import Server, serving

pytestmark = [
    pytest.mark.skipif(not gpus.installed(), reason="no NVIDIA GPU here"),
    pytest.mark.skipif(
        find_spec("jax") is None, reason="jax is not installed: requirements/jax.txt"
    ),
    pytest.mark.timeout(300),
]
WIDTH, ROWS, FRACTION = 512, 64, 0.05
# Of a process's share of the GPU, for each row of WIDTH numbers: some rows fit into it,
# and a batch of ROWS does not.
ROW_SHARE = 1 / 24
MODELS = ("dense", "sorted", "any_size")
# Memory of the CUDA context and of cuBLAS, which belongs to no share.
CONTEXT_MIB = 1024
# Arguments: a folder, WIDTH, ROWS, and how many copies of a row are sorted.
MAKE = """
import os, sys
os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
import keras
import numpy as np

def save(name, row, output):
    os.makedirs(f"{folder}/models/{name}/1")
    model = keras.Model(row, output)
    model.save(f"{folder}/models/{name}/1/model.keras")
    return model

folder, width, rows, copies = sys.argv[1], *map(int, sys.argv[2:])
keras.utils.set_random_seed(3)
row = dense = keras.Input((width,), name="row")
for _ in range(4):
    dense = keras.layers.Dense(width)(dense)
model = save("dense", row, dense)
batch = np.random.default_rng(4).standard_normal((rows, width), np.float32)
np.savez(f"{folder}/dense.npz", batch=batch, answers=model(batch))
for name, size in ("sorted", width), ("any_size", None):
    row = keras.Input((size,), name="row")
    # Sorting is no part of a larger program: it keeps all copies in memory.
    save(name, row, keras.ops.sort(keras.ops.tile(row, (1, copies)))[:, ::copies])
"""


@pytest.fixture(name="folder", scope="module")
def _folder(tmp_path_factory) -> Path:
    """Return the folder of the models, and of the answers of one on the processor."""
    folder = tmp_path_factory.mktemp("gpu")
    share_bytes = FRACTION * gpus.installed()[0].memory_mib * (1 << 20)
    row_bytes = WIDTH * np.dtype(np.float32).itemsize
    copies = round(ROW_SHARE * share_bytes / row_bytes)
    run_python("-c", MAKE, str(folder), *map(str, (WIDTH, ROWS, copies)))
    return folder


@pytest.fixture(name="dense", scope="module")
def _dense(folder) -> tuple[np.ndarray, np.ndarray]:
    """Return a batch, and the answers of the model dense on the processor."""
    with np.load(folder / "dense.npz") as saved:
        return saved["batch"], saved["answers"]


@pytest.fixture(name="others_mib", scope="module")
def _others_mib() -> int:
    """Return what other processes use of the GPU before the server starts."""
    return used_mib()


@pytest.fixture(name="server", scope="module")
def _server(folder, others_mib) -> Iterator[Server]:
    """Serve all models with two processes, which each have a share of one GPU."""
    with serving(
        "--workers=2",
        "--threads=4",
        ready=False,
        model_dir=str(folder / "models"),
        engine="jax",
        max_batch_size=str(ROWS),
        gpus="0",
        gpu_memory_fraction=str(FRACTION),
    ) as server:
        server.wait_until_ready(2 * len(MODELS), within_s=200)
        yield server


def answers(server: Server, model: str, batch: np.ndarray) -> np.ndarray:
    """Return the rows that the model answers."""
    body = json.dumps({"instances": batch.tolist()}).encode()
    reply = server.request("POST", f"/v1/models/{model}:predict", body)
    assert reply.status == HTTPStatus.OK, reply.body.decode()
    return np.array(reply.json()["predictions"], np.float32)


def used_mib() -> int:
    (card,) = gpus.MemoryReader((0,)).read()
    return card.used_mib


def test_batch_that_exceeds_the_share_runs_as_smaller_ones(dense, server):
    """All rows of a batch that exceeds the worker's share are answered."""
    batch, _ = dense
    before = server.workers()
    for _ in range(4):
        assert np.array_equal(answers(server, "sorted", batch), np.sort(batch))
    series = 'basket_batch_ceiling_rows{model="sorted",version="1"}'
    assert 1 < server.metric(series) < ROWS
    assert server.workers() == before


def test_row_that_exceeds_the_share_is_the_only_one_refused(server):
    """A request whose row exceeds the share gets 507, and later ones are answered."""
    row = np.arange(64 * WIDTH, dtype=np.float32)[None, ::-1]
    small = row[:, :WIDTH]
    before = server.workers()
    for _ in range(4):
        body = json.dumps({"instances": row.tolist()}).encode()
        reply = server.request("POST", "/v1/models/any_size:predict", body)
        assert reply.status == HTTPStatus.INSUFFICIENT_STORAGE, reply.body.decode()
        assert np.array_equal(answers(server, "any_size", small), np.sort(small))
    assert server.workers() == before


def test_workers_keep_to_their_shares(dense, others_mib, server):
    """Two processes hold their shares and CUDA's contexts, which /metrics shows."""
    for _ in range(8):
        answers(server, "dense", dense[0])
    share_mib = FRACTION * gpus.installed()[0].memory_mib
    least_mib, most_mib = 2 * share_mib, 2 * (share_mib + CONTEXT_MIB)
    assert least_mib <= used_mib() - others_mib <= most_mib
    shown_mib = server.metric('basket_gpu_memory_used_bytes{gpu="0"}') / (1 << 20)
    assert shown_mib == pytest.approx(used_mib(), rel=0.01)
    assert server.log.read_text().count(" uses GPU 0") == 2


def test_gpu_computes_in_float32(dense, server):
    """A GPU's answers equal the processor's, which TF32 would miss by 1e-3."""
    batch, expected = dense
    for rows in (1, ROWS):
        found = answers(server, "dense", batch[:rows])
        off = np.abs(found - expected[:rows]).max() / np.abs(expected).max()
        assert off < 1e-5


def test_other_precision_is_chosen_by_jax_own_variable(folder, dense):
    """With JAX_DEFAULT_MATMUL_PRECISION=tensorfloat32 the GPU rounds its inputs."""
    batch, expected = dense
    environ = os.environ | {"JAX_DEFAULT_MATMUL_PRECISION": "tensorfloat32"}
    only = shutil.copytree(folder / "models" / "dense", folder / "rounded" / "dense")
    with serving(engine="jax", model_dir=str(only.parent), environ=environ) as server:
        found = answers(server, "dense", batch)
    off = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-4 < off < 1e-2
