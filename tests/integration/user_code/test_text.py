"""Text in, labels out: a vocabulary and a service.py beside a Keras model."""

import numpy as np
import pytest

from testing.clients import at_once
from tests.support.marks import USES_TENSORFLOW
from tests.support.user_code import add_service, serving_code

pytestmark = USES_TENSORFLOW

CLIENTS = 64
CODE = """
import os
from pathlib import Path

from app import BadInput

WORDS = (Path(__file__).parent / "words.txt").read_text().split()
LABELS = ["bad", "good"]
EXAMPLE = "what a nice day"


def load(folder):
    (Path("PIDS") / "load").write_text(str(os.getpid()))


def preprocess(text):
    if not isinstance(text, str):
        raise BadInput("expected text")
    (Path("PIDS") / str(os.getpid())).touch()
    return [text.split().count(word) for word in WORDS]


def postprocess(row):
    return LABELS[row.argmax()]
"""
MODES = {
    "worker": ["--threads=4"],
    "shared": ["--threads=4", "--workers=2"],
}


def _write(keras, models, pids):
    """Write a model that counts good and bad words."""
    version = add_service(models, "mood", CODE.replace("PIDS", str(pids)))
    (version / "words.txt").write_text("nice sunny rain cold")
    words = keras.Input((4,))
    scores = keras.layers.Dense(2, use_bias=False)
    model = keras.Model(words, scores(words))
    scores.set_weights([np.array([[0, 1], [0, 1], [1, 0], [1, 0]])])
    model.save(version / "model.keras")


@pytest.mark.parametrize("mode", MODES)
def test_text_of_64_clients_gets_labels_and_bad_text_its_own_error(
    keras, tmp_path, mode
):
    """63 clients get their labels, and one is told which instance is no text."""
    models, pids = tmp_path / "models", tmp_path / "pids"
    pids.mkdir()
    _write(keras, models, pids)
    texts = [["so nice", "rain again"][n % 2] for n in range(CLIENTS)]
    labels = [["good", "bad"][n % 2] for n in range(CLIENTS)]
    # Long enough that rows meet on any machine.
    settings = {"model_process": mode, "batch_timeout_micros": "50000"}
    with serving_code(models, *MODES[mode], **settings) as server:
        has_model = (pids / "load").read_text()
        # EXAMPLE has run where the model is.
        (pids / has_model).unlink()
        replies, _ = at_once(server.port, [*texts[:10], 5, *texts[11:]])
        bad = replies.pop(10)
        processes = {str(pid) for pid in server.workers()}
    ran_in = {each.name for each in pids.glob("[0-9]*")}
    labels.pop(10)
    assert [reply.json().get("predictions") for reply in replies] == [
        [label] for label in labels
    ]
    assert bad.status == 400
    assert bad.json() == {"error": "instances[0]: expected text"}
    assert max(int(reply.headers["X-Batch-Size"]) for reply in replies) > 1
    assert ran_in
    web_workers = processes - {has_model} if mode == "shared" else {has_model}
    assert ran_in <= web_workers
