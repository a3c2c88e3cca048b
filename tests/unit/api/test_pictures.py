"""POST /predict with pictures, over HTTP: forms, bodies, answers and refusals."""

import base64
import io
import json
import threading

import numpy as np
import pytest

from app.codec import classes, rows
from app.engines.base import DEFAULT_SIGNATURE
from app.settings.image_config import ImageClass, ImageConfig
from testing.pictures import colours, form, saved
from tests.support.exchanges import error
from tests.support.signatures import takes

NPY = "application/x-npy"
NAMES = ["left", "middle", "right"]
IMAGE = {"size": "[1, 3]", "mode": '"L"', "scale": '"none"'}
WITH_CLASSES = {**IMAGE, "classes": '"classes.json"'}


def bright(place: int) -> bytes:
    """A picture of three pixels; the model answers with their values."""
    pixels = np.full((1, 3), 10, np.uint8)
    pixels[0, place] = 200
    pixels[0, (place + 1) % 3] = 20
    return saved(pixels)


@pytest.fixture(name="serve")
def _serve(tmp_path, client_of):
    """Start a simulated model that answers with a picture's three pixels."""

    def serve(image=WITH_CLASSES, wait=True, **simulation):
        version = tmp_path / "till" / "1"
        version.mkdir(parents=True)
        simulation = {"base_ms": 0, "input_shape": [1, 3, 1], "outputs": 3} | simulation
        (version / "simulated.json").write_text(json.dumps(simulation))
        if image is not None:
            lines = "".join(f"{key} = {value}\n" for key, value in image.items())
            (version.parent / "basket.toml").write_text(f"[image]\n{lines}")
            (version.parent / "classes.json").write_text(json.dumps(NAMES))
        return client_of(model_dir=tmp_path, wait=wait)

    return serve


def post(client, *files, path="/predict", headers=None, **kwargs):
    body, given = form(*files, **kwargs)
    return client.post(path, data=body, headers={**given, **(headers or {})})


def named(place: int, score: float = 200.0) -> dict[str, object]:
    return {"class_id": str(place), "class_name": NAMES[place], "score": score}


# Right answers.


@pytest.mark.parametrize("path", ["/predict", "/stream_predict"])
def test_a_picture_gets_its_name(serve, path):
    """One file in a form is answered by one class, with its score."""
    reply = post(serve(), bright(2), path=path)
    assert reply.status_code == 200
    assert reply.mimetype == "application/json"
    assert reply.json == named(2)
    assert reply.headers["X-Model-Version"] == "1"
    assert reply.headers["X-Batch-Size"] == "1"


def test_several_pictures_are_one_request(serve):
    """Several files are answered by a list in their order, out of one batch."""
    reply = post(serve(), bright(1), bright(0), bright(2))
    assert reply.json == [named(1), named(0), named(2)]
    assert reply.headers["X-Batch-Size"] == "3"


def test_top_lists_the_best(serve):
    """With top=2 each picture gets a list of two classes, the best first."""
    client = serve()
    reply = post(client, bright(2), path="/predict?top=2")
    assert reply.json == [named(2), named(0, 20.0)]
    reply = post(client, bright(2), bright(1), path="/predict?top=1")
    assert reply.json == [[named(2)], [named(1)]]
    reply = post(client, bright(0), path="/predict?top=3")
    assert reply.json == [named(0), named(1, 20.0), named(2, 10.0)]


@pytest.mark.parametrize("mimetype", ["image/jpeg", "image/png", "image/webp"])
def test_a_picture_as_the_whole_body(serve, mimetype):
    """A body of an image type is a picture; its bytes say of what kind it is."""
    reply = serve().post("/predict", data=bright(1), content_type=mimetype)
    assert reply.json == named(1)


def test_a_terse_form_is_fine(serve):
    """No line break behind the last boundary, as wrk scripts write it, is fine."""
    reply = post(serve(), bright(1), end="", boundary="----WebKitFormBoundary7MA4YW")
    assert reply.json == named(1)


def test_other_fields_are_left_alone(serve):
    """Text beside the file, and files under other names, change nothing."""
    data = {
        "shop": "12",
        "receipt": (io.BytesIO(b"no picture"), "receipt.txt"),
        "file": (io.BytesIO(bright(2)), "product.png"),
    }
    assert serve().post("/predict", data=data).json == named(2)


def test_a_score_has_its_own_width():
    """A score in half precision is written with the digits that it has."""
    scores = np.array([[0.1, 0.9, 0.0]], np.float16)
    known = tuple(ImageClass(str(place), name) for place, name in enumerate(NAMES))
    answer = classes.encode({"y": scores}, known, 2, single=True)
    assert [each["score"] for each in json.loads(answer)] == [0.9, 0.1]


def test_without_classes_pictures_get_predictions(serve):
    """A model whose classes have no names answers with their scores."""
    client = serve(IMAGE)
    reply = post(client, bright(1))
    assert reply.json == {"predictions": [[10.0, 200.0, 20.0]]}
    reply = post(client, bright(1), bright(2))
    assert reply.json == {"predictions": [[10.0, 200.0, 20.0], [20.0, 10.0, 200.0]]}
    assert "no classes" in error(post(client, bright(1), path="/predict?top=1"), 400)


def test_scores_can_be_had_as_npy(serve):
    """Whoever accepts .npy gets the scores of pictures as .npy too."""
    reply = post(serve(), bright(1), headers={"Accept": NPY})
    assert reply.mimetype == NPY
    np.testing.assert_array_equal(np.load(io.BytesIO(reply.data)), [[10, 200, 20]])


def test_readyz_tells_of_pictures(serve):
    """/readyz says what pictures a model takes, so that a request can be built."""
    told = serve().get("/readyz").json["models"]["till"]
    assert told["image"] == {"size": [1, 3], "mode": "L"}


def test_rows_of_numbers_stay_what_they_are(serve):
    """A model that takes pictures takes JSON and .npy, answered by predictions."""
    client = serve()
    row = [[[1.0], [2.0], [3.0]]]
    reply = client.post("/predict", json={"instances": [row]})
    assert reply.json == {"predictions": [[1.0, 2.0, 3.0]]}
    file = io.BytesIO()
    np.save(file, np.array([row], np.float32))
    reply = client.post("/predict", data=file.getvalue(), content_type=NPY)
    assert reply.json == {"predictions": [[1.0, 2.0, 3.0]]}


def test_a_score_that_is_no_number_is_told(serve, monkeypatch):
    """NaN is written as the bare token, as everywhere."""

    def run(self, batch, signature_name=None):
        (rows,) = batch.values()
        return {"output": np.full((len(rows), 3), np.nan, np.float32)}

    monkeypatch.setattr("app.engines.simulated.SimulatedEngine.run", run)
    reply = post(serve(), bright(1))
    assert '"score":NaN' in reply.text


def b64(file: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(file).decode()}


@pytest.mark.parametrize("path", ["/predict", "/v1/models/till:predict"])
@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ({"instances": [b64(bright(1)), b64(bright(2))]}, "predictions"),
        (
            {"instances": [{"input": b64(bright(1))}, {"input": b64(bright(2))}]},
            "predictions",
        ),
        ({"inputs": [b64(bright(1)), b64(bright(2))]}, "outputs"),
        ({"inputs": {"input": [b64(bright(1)), b64(bright(2))]}}, "outputs"),
    ],
)
def test_pictures_as_b64(serve, path, body, answer):
    """In V1's JSON a picture stands as b64, in rows and columns, named or not."""
    reply = serve().post(path, json=body)
    assert reply.json == {answer: [[10.0, 200.0, 20.0], [20.0, 10.0, 200.0]]}


@pytest.mark.parametrize(
    ("instances", "status", "expected"),
    [
        ([b64(bright(1)), [[[1.0], [2.0], [3.0]]]], 400, "instances[1]: expected"),
        ([[[[1.0], [2.0], [3.0]]], b64(bright(1))], 400, "instances[0]: expected"),
        ([b64(bright(1)), {"b64": "?"}], 400, "instances[1]: not base64"),
        ([b64(b"")], 400, "instances[0]: is empty"),
        ([b64(b"hello")], 400, "instances[0]: expected a picture"),
        ([{"input": b64(b"hello")}], 400, "instances[0].input: expected a picture"),
        ([b64(b"x")] * 65, 413, "65 pictures in one request, at most 64"),
    ],
)
def test_b64_that_is_no_picture_is_refused(serve, instances, status, expected):
    """What is wrong with a picture in JSON is told with its place."""
    reply = serve().post("/predict", json={"instances": instances})
    assert error(reply, status).startswith(expected)


def test_b64_for_another_signature_is_a_string():
    """Only the default signature takes pictures; another's b64 is bytes as ever."""
    signatures = {
        DEFAULT_SIGNATURE: takes("f4", 1, 3, 1),
        "labels": takes("O"),
    }
    config = ImageConfig((1, 3), "L", "none", "nearest", ())
    body = {"instances": [b64(bright(1))]}
    (row,) = rows.decode(json.dumps(body).encode(), signatures, config).inputs["x"]
    assert row.shape == (1, 3, 1)
    body["signature_name"] = "labels"
    (row,) = rows.decode(json.dumps(body).encode(), signatures, config).inputs["x"]
    assert row == bright(1)


def test_b64_for_a_model_of_numbers_is_a_wrong_type(serve):
    """A model without [image] takes numbers only, as in TensorFlow Serving."""
    reply = serve(None).post("/predict", json={"instances": [b64(bright(1))]})
    assert error(reply, 400) == "instances[0]: expected a list, given an object"


# Refusals, all in the request's own thread.


def test_a_bad_picture_hurts_no_neighbour(serve, monkeypatch):
    """A broken file is refused at once while a batch runs, and that batch is well."""
    client, started, go_on = serve(), threading.Event(), threading.Event()

    def run(self, batch, signature_name=None):
        started.set()
        assert go_on.wait(10)
        return {"output": batch["input"].reshape(len(batch["input"]), 3)}

    monkeypatch.setattr("app.engines.simulated.SimulatedEngine.run", run)
    neighbours = []
    other = client.application.test_client()
    thread = threading.Thread(target=lambda: neighbours.append(post(other, bright(1))))
    thread.start()
    assert started.wait(10)
    assert "picture[0]" in error(post(client, b"broken"), 400)
    assert not neighbours
    go_on.set()
    thread.join()
    assert neighbours[0].json == named(1)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"", "picture[0]: is empty"),
        (b"hello", "picture[0]: expected a picture of at least one pixel"),
        (saved(colours())[:500], "picture[0]: the picture is damaged or cut off"),
    ],
)
def test_what_is_no_picture_is_refused(serve, file, expected):
    """A file that can't be read is a 400 that says which and why."""
    client = serve()
    assert error(post(client, file), 400).startswith(expected)
    reply = client.post("/predict", data=file, content_type="image/png")
    assert error(reply, 400).startswith(expected)


def test_one_bad_picture_of_several_is_named(serve):
    """Of three files the broken second is named, and none is answered."""
    text = error(post(serve(), bright(1), b"x", bright(2)), 400)
    assert text.startswith("picture[1]: ")


def test_too_large_a_picture_is_413(serve):
    """A picture of more than 40 megapixels is too large."""
    black = saved(np.zeros((6000, 8000), np.uint8))
    assert "more than 40 megapixels" in error(post(serve(), black), 413)


@pytest.mark.parametrize("files", [65, 100, 1000])
def test_too_many_pictures_are_413(serve, files):
    """More than 64 files in one request are refused, however many."""
    text = error(post(serve(), *[b"x"] * files), 413)
    assert text in (
        f"{files} pictures in one request, at most 64",
        "more than 64 pictures and fields in one form",
    )


@pytest.mark.parametrize(("fields", "status"), [(79, 200), (80, 413), (900, 413)])
def test_the_parts_of_a_form_are_bounded(serve, fields, status):
    """Beside a picture a form may have 79 other fields, and not one more."""
    data = {f"field{number}": "x" for number in range(fields)}
    data["file"] = (io.BytesIO(bright(2)), "product.png")
    assert serve().post("/predict", data=data).status_code == status


def test_64_pictures_are_answered(serve):
    """As many files as there may be are answered one by one."""
    reply = post(serve(), *[bright(place % 3) for place in range(64)])
    assert reply.json == [named(place % 3) for place in range(64)]


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        pytest.param(
            "multipart/form-data",
            form(bright(1))[0],
            "multipart/form-data without a boundary",
            id="no boundary",
        ),
        pytest.param(
            "multipart/form-data; boundary=other",
            form(bright(1))[0],
            "not the form that its Content-Type says",
            id="another boundary",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            form(bright(1))[0][:-30],
            "is cut off",
            id="cut off",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            b"--edge\r\nX: y\r\n\r\nz\r\n--edge--",
            "a part of the form has no Content-Disposition",
            id="no disposition",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            b"--edge--\r\n",
            'no field "file" with a picture in the form; fields given: none',
            id="no field",
        ),
        pytest.param(
            *form(bright(1), field="image")[::-1],
            'no field "file" with a picture in the form; fields given: image',
            id="another field",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            b"--edge\r\nContent-Disposition: form-data\r\n\r\nz\r\n--edge--",
            "in the form; fields given: ",
            id="a field without a name",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            b'--edge\r\nContent-Disposition: form-data; name="file"\r\n\r\nz\r\n'
            b"--edge--",
            'the field "file" has no filename, so it is text and not a file',
            id="text",
        ),
        pytest.param(
            "multipart/form-data; boundary=edge",
            b"--edge\r\nContent-Disposition: form-data" + b";a=b" * 2048 + b"\r\n\r\n",
            "a part of the form has a header of more than 8192 bytes",
            id="a long header",
        ),
    ],
)
def test_a_form_that_is_none_is_refused(serve, headers, body, expected):
    """What is wrong with a form is said as JSON, with 400."""
    given = {"Content-Type": headers} if isinstance(headers, str) else headers
    reply = serve().post("/predict", data=body, headers=given)
    assert expected in error(reply, 400)


@pytest.mark.parametrize("top", ["0", "4", "-1", "1.0", "", "a", "1" * 5000, "²"])
def test_a_top_that_cannot_be_is_refused(serve, top):
    """`top` is a whole number from 1 to the number of classes."""
    text = error(post(serve(), bright(1), path=f"/predict?top={top}"), 400)
    assert text.startswith("top: expected a whole number from 1 to 3, given ")
    assert len(text) < 120


def test_a_model_without_image_takes_no_pictures(serve):
    """Pictures for a model that knows only numbers get a 400 that says so."""
    client = serve(None)
    expected = "model 'till' takes no pictures: its basket.toml has no [image]"
    assert error(post(client, bright(1)), 400) == expected
    reply = client.post("/predict", data=bright(1), content_type="image/png")
    assert error(reply, 400) == expected
    no_form = {"Content-Type": "multipart/form-data"}
    reply = client.post("/predict", data=b"", headers=no_form)
    assert error(reply, 400) == expected


@pytest.mark.parametrize(
    ("image", "simulation", "expected"),
    [
        (
            {**IMAGE, "size": "[3, 1]"},
            {},
            "[image] makes rows (3, 1, 1), the model takes (1, 3, 1)",
        ),
        (
            {**IMAGE, "mode": '"RGB"'},
            {},
            "[image] makes rows (1, 3, 3), the model takes (1, 3, 1)",
        ),
        (
            WITH_CLASSES,
            {"outputs": 2},
            "[image] has 3 classes, the model's output is (2,)",
        ),
    ],
)
def test_an_image_table_that_does_not_fit_is_told(serve, image, simulation, expected):
    """A model that does not take what [image] makes is not ready, with both sides."""
    reply = serve(image, wait=False, **simulation)
    reply.application.extensions["basket"].wait(10)
    assert expected in reply.get("/readyz").json["error"]
