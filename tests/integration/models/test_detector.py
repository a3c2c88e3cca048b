"""A SavedModel that takes exactly one picture, asked by many clients at once."""

import json

import numpy as np
import pytest

from testing.clients import in_parallel
from testing.server import serving
from testing.tried.not_batched import detector, images
from testing.tried.saving import Saving
from tests.support.marks import USES_TENSORFLOW

pytestmark = USES_TENSORFLOW
CLIENTS, REQUESTS = 20, 5


@pytest.fixture(scope="module")
def folder(keras, tf, tmp_path_factory):
    """Save a detector as it is on TF Hub."""
    folder = tmp_path_factory.mktemp("models")
    saving = Saving(keras, tf, folder / "detector" / "1")
    saving.functions(serving_default=detector(saving))
    return folder


def test_20_clients_at_once_get_the_answers_of_their_pictures(tf, folder):
    """Requests of one to three pictures, of three sizes, are answered in order."""
    detect = tf.saved_model.load(folder / "detector" / "1").signatures[
        "serving_default"
    ]
    sizes = [(8, 12), (16, 9), (30, 30)]
    pictures = [
        images(number % 3 + 1, *sizes[number % len(sizes)], seed=number)
        for number in range(CLIENTS * REQUESTS)
    ]
    expected = [
        [detect(image=tf.constant(picture[np.newaxis])) for picture in each]
        for each in pictures
    ]
    with serving("--threads=4", model_dir=str(folder)) as server:

        def ask(client):
            for number in range(client, CLIENTS * REQUESTS, CLIENTS):
                body = json.dumps({"instances": pictures[number].tolist()}).encode()
                path = "/v1/models/detector:predict"
                reply = server.request("POST", path, body)
                assert reply.status == 200, reply.body
                predictions = reply.json()["predictions"]
                for given, known in zip(predictions, expected[number], strict=True):
                    assert set(given) == set(known)
                    for name, values in known.items():
                        np.testing.assert_allclose(given[name], values[0], rtol=1e-5)

        in_parallel(ask, CLIENTS)
        state = server.request("GET", "/readyz").json()["models"]["detector"]
    assert "fixed first dimension 1" in json.dumps(state)
    scores = {each[0]["detection_scores"].numpy().tobytes() for each in expected}
    assert len(scores) == CLIENTS * REQUESTS
