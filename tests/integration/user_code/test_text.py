"""Text in, labels out: a vocabulary and a service.py beside a Keras model."""

from collections import defaultdict

import numpy as np
import pytest

from testing.clients import at_once
from tests.support.marks import USES_TENSORFLOW
from tests.support.user_code import add_service, serving_code

pytestmark = USES_TENSORFLOW

CLIENTS = 64
CODE = """
import os
import threading
from pathlib import Path

from app import BadInput


def note(function):
    (Path("NOTES") / function).mkdir(exist_ok=True)
    thread = threading.current_thread().name
    (Path("NOTES") / function / f"{os.getpid()} {thread}").touch()


note("import")
WORDS = (Path(__file__).parent / "words.txt").read_text().split()
LABELS = ["bad", "good"]
EXAMPLE = "what a nice day"


def preprocess(text):
    if not isinstance(text, str):
        raise BadInput("expected text")
    note("preprocess")
    return [text.split().count(word) for word in WORDS]


def predict(model, batch):
    note("predict")
    return model(batch)


def postprocess(row):
    note("postprocess")
    return LABELS[row.argmax()]
"""
MODES = {
    "worker": ["--threads=4"],
    "shared": ["--threads=4", "--workers=2"],
}


def _write(keras, models, notes):
    """Write a model that counts good and bad words."""
    version = add_service(models, "mood", CODE.replace("NOTES", str(notes)))
    (version / "words.txt").write_text("nice sunny rain cold")
    words = keras.Input((4,))
    scores = keras.layers.Dense(2, use_bias=False)
    model = keras.Model(words, scores(words))
    scores.set_weights([np.array([[0, 1], [0, 1], [1, 0], [1, 0]])])
    model.save(version / "model.keras")


def _take(notes):
    """Remove the notes; return the (process, thread) that each function ran in."""
    found = defaultdict(set)
    for note in notes.glob("*/*"):
        pid, _, thread = note.name.partition(" ")
        found[note.parent.name].add((int(pid), thread))
        note.unlink()
    return found


@pytest.mark.parametrize("mode", MODES)
def test_text_of_64_clients_gets_labels_and_bad_text_its_own_error(
    keras, tmp_path, mode
):
    """63 clients get their labels, and one is told which instance is no text.

    Each function runs in the processes and threads that it should.
    """
    models, notes = tmp_path / "models", tmp_path / "notes"
    notes.mkdir()
    _write(keras, models, notes)
    texts = [["so nice", "rain again"][n % 2] for n in range(CLIENTS)]
    labels = [["good", "bad"][n % 2] for n in range(CLIENTS)]
    # Long enough that rows meet on any machine.
    settings = {"model_process": mode, "batch_timeout_micros": "50000"}
    with serving_code(models, *MODES[mode], **settings) as server:
        # EXAMPLE has run where the model is.
        loaded_in = _take(notes)
        replies, _ = at_once(server.port, [*texts[:10], 5, *texts[11:]])
        bad = replies.pop(10)
        processes = {*server.workers()}
    labels.pop(10)
    assert [reply.json().get("predictions") for reply in replies] == [
        [label] for label in labels
    ]
    assert bad.status == 400
    assert bad.json() == {"error": "instances[0]: expected text"}
    assert max(int(reply.headers["X-Batch-Size"]) for reply in replies) > 1
    _check_places(mode, processes, loaded_in, _take(notes))


def _check_places(mode, processes, loaded_in, ran_in):
    """Check where each function ran while the server loaded, and for requests."""
    ((has_model, _),) = loaded_in["predict"]
    assert loaded_in["import"] == {(pid, "service load") for pid in processes}
    assert ran_in["predict"] == {(has_model, "batching")}
    web_workers = processes - {has_model} if mode == "shared" else {has_model}
    for function in ("preprocess", "postprocess"):
        pids, threads = (set(each) for each in zip(*ran_in[function], strict=True))
        assert pids <= web_workers
        assert threads == {"service"}
