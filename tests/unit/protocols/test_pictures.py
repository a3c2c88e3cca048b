"""POST /predict with images: multipart forms, bodies, base64 and refusals."""

import base64
import io
import json
import threading

import numpy as np
import pytest

from app.call import Call, Head, Peer
from app.codec import classes, rows
from app.engines.base import DEFAULT_SIGNATURE
from app.protocols import forms
from app.serving.asks import Asks
from app.settings.image_config import ImageClass, ImageConfig
from testing.pictures import colors, form, of_size, picture, saved
from tests.support.exchanges import error, started_client
from tests.support.signatures import takes

NPY = "application/x-npy"
NAMES = ["left", "middle", "right"]
IMAGE = {"size": "[1, 3]", "mode": '"L"', "scale": '"none"'}
EDGE = "multipart/form-data; boundary=edge"
WITH_CLASSES = {**IMAGE, "classes": '"classes.json"'}


def bright(place: int) -> bytes:
    """Return an image of three pixels; the model answers with their values."""
    pixels = np.full((1, 3), 10, np.uint8)
    pixels[0, place] = 200
    pixels[0, (place + 1) % 3] = 20
    return saved(pixels)


def write_model(folder, image=WITH_CLASSES, **simulation):
    """Write a simulated model that answers with an image's three pixels."""
    version = folder / "till" / "1"
    version.mkdir(parents=True)
    simulation = {"base_ms": 0, "input_shape": [1, 3, 1], "outputs": 3} | simulation
    (version / "simulated.json").write_text(json.dumps(simulation))
    if image is not None:
        lines = "".join(f"{key} = {value}\n" for key, value in image.items())
        (version.parent / "basket.toml").write_text(f"[image]\n{lines}")
        (version.parent / "classes.json").write_text(json.dumps(NAMES))


@pytest.fixture(name="serve")
def _serve(tmp_path, client_of):
    """Start an application with a model of one test."""

    def serve(image=WITH_CLASSES, wait=True, **simulation):
        write_model(tmp_path, image, **simulation)
        return client_of(model_dir=tmp_path, wait=wait)

    return serve


@pytest.fixture(name="client", scope="module")
def _client(tmp_path_factory):
    """A client for all tests of a model with classes."""
    folder = tmp_path_factory.mktemp("models")
    write_model(folder)
    with started_client(folder) as client:
        yield client


def post(client, *files, path="/predict", headers=None, **kwargs):
    body, given = form(*files, **kwargs)
    return client.post(path, data=body, headers={**given, **(headers or {})})


def named(place: int, score: float = 200.0) -> dict[str, object]:
    return {"class_id": str(place), "class_name": NAMES[place], "score": score}


# Responses.


@pytest.mark.parametrize("path", ["/predict", "/stream_predict"])
def test_multipart_image_is_answered_with_its_class(client, path):
    """One file of a form is answered with its best class and the score."""
    response = post(client, bright(2), path=path)
    assert response.status_code == 200
    assert response.mimetype == "application/json"
    assert response.json == named(2)
    assert response.headers["X-Model-Version"] == "1"
    assert response.headers["X-Batch-Size"] == "1"


def test_multipart_with_several_images_is_one_request(client):
    """Several files are answered with a list in their order, from one batch."""
    response = post(client, bright(1), bright(0), bright(2))
    assert response.json == [named(1), named(0), named(2)]
    assert response.headers["X-Batch-Size"] == "3"
    response = post(client, *[bright(place % 3) for place in range(64)])
    assert response.json == [named(place % 3) for place in range(64)]


def test_top_lists_the_best_classes(client):
    """With top=2 each image gets a list of two classes, the best first."""
    response = post(client, bright(2), path="/predict?top=2")
    assert response.json == [named(2), named(0, 20.0)]
    response = post(client, bright(2), bright(1), path="/predict?top=1")
    assert response.json == [[named(2)], [named(1)]]
    response = post(client, bright(0), path="/predict?top=3")
    assert response.json == [named(0), named(1, 20.0), named(2, 10.0)]


@pytest.mark.parametrize("mimetype", ["image/jpeg", "image/png", "image/webp"])
def test_image_as_the_whole_body(client, mimetype):
    """A body of any image type is an image; its bytes give the format."""
    response = client.post("/predict", data=bright(1), content_type=mimetype)
    assert response.json == named(1)


def test_multipart_without_a_final_line_break(client):
    """A form may end without a line break, as wrk scripts write it."""
    response = post(client, bright(1), end="", boundary="----WebKitFormBoundary7MA4YW")
    assert response.json == named(1)


def test_multipart_ignores_other_fields(client):
    """Text fields, and files in other fields, are ignored."""
    data = {
        "shop": "12",
        "receipt": (io.BytesIO(b"no picture"), "receipt.txt"),
        "file": (io.BytesIO(bright(2)), "product.png"),
    }
    assert client.post("/predict", data=data).json == named(2)


def test_float16_score_has_the_fewest_digits():
    """A float16 score is written with the digits that it needs."""
    scores = np.array([[0.1, 0.9, 0.0]], np.float16)
    known = tuple(ImageClass(str(place), name) for place, name in enumerate(NAMES))
    answer = classes.encode({"y": scores}, known, 2)
    assert [each["score"] for each in json.loads(answer)] == [0.9, 0.1]


def test_model_without_classes_answers_with_predictions(serve):
    """Without classes the response has the scores, and top is a 400."""
    client = serve(IMAGE)
    response = post(client, bright(1))
    assert response.json == {"predictions": [[10.0, 200.0, 20.0]]}
    response = post(client, bright(1), bright(2))
    assert response.json == {"predictions": [[10.0, 200.0, 20.0], [20.0, 10.0, 200.0]]}
    assert "no classes" in error(post(client, bright(1), path="/predict?top=1"), 400)


def test_scores_of_an_image_as_npy(client):
    """With Accept: application/x-npy the scores come as .npy."""
    response = post(client, bright(1), headers={"Accept": NPY})
    assert response.mimetype == NPY
    np.testing.assert_array_equal(np.load(io.BytesIO(response.data)), [[10, 200, 20]])


def test_readyz_describes_the_image(client):
    """/readyz has the size and mode of the images that a model takes."""
    told = client.get("/readyz").json["models"]["till"]
    assert told["image"] == {"size": [1, 3], "mode": "L"}


def test_image_model_takes_rows_of_numbers(client):
    """A model of images takes JSON and .npy too, answered with predictions."""
    row = [[[1.0], [2.0], [3.0]]]
    response = client.post("/predict", json={"instances": [row]})
    assert response.json == {"predictions": [[1.0, 2.0, 3.0]]}
    file = io.BytesIO()
    np.save(file, np.array([row], np.float32))
    response = client.post("/predict", data=file.getvalue(), content_type=NPY)
    assert response.json == {"predictions": [[1.0, 2.0, 3.0]]}


def test_nan_score_is_a_bare_token(client, monkeypatch):
    """A score of NaN is written as in other responses."""

    def run(self, batch, signature_name=None):
        (rows,) = batch.values()
        return {"output": np.full((len(rows), 3), np.nan, np.float32)}

    monkeypatch.setattr("app.engines.simulated.SimulatedEngine.run", run)
    response = post(client, bright(1))
    assert '"score":NaN' in response.text


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
def test_base64_images_in_json(client, path, body, answer):
    """In JSON an image is base64, in rows and columns, named or not."""
    response = client.post(path, json=body)
    assert response.json == {answer: [[10.0, 200.0, 20.0], [20.0, 10.0, 200.0]]}


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
def test_malformed_base64_image_is_refused(client, instances, status, expected):
    """The error names the place of the image."""
    response = client.post("/predict", json={"instances": instances})
    assert error(response, status).startswith(expected)


def test_base64_for_another_signature_is_a_string():
    """Only the default signature takes images."""
    signatures = {DEFAULT_SIGNATURE: takes("f4", 1, 3, 1), "labels": takes("O")}
    config = ImageConfig((1, 3), "L", "none", "nearest", ())
    body = {"instances": [b64(bright(1))]}
    (row,) = rows.decode(json.dumps(body).encode(), signatures, config).inputs["x"]
    assert row.shape == (1, 3, 1)
    body["signature_name"] = "labels"
    (row,) = rows.decode(json.dumps(body).encode(), signatures, config).inputs["x"]
    assert row == bright(1)


def test_base64_for_a_model_without_image_is_refused(serve):
    """A model without [image] takes numbers only, as in TensorFlow Serving."""
    response = serve(None).post("/predict", json={"instances": [b64(bright(1))]})
    text = "instances[0]: expected a list, given an object; a row has shape (1, 3, 1)"
    assert error(response, 400).startswith(text)


def test_files_of_a_form_are_not_copied():
    """The files of a form share the memory of its body."""
    files = [bright(0), bright(1)]
    body, headers = form(*files)
    head = Head("POST", "/predict", "", {"content-type": headers["Content-Type"]})
    head.asks = Asks(head, 1000, 1 << 20)
    found = forms.files(Call(head, b"", Peer("", 0, "unix", 0)), body)
    assert [bytes(each) for each in found] == files
    assert all(memoryview(each).obj is body for each in found)


# Refusals.


def test_malformed_image_does_not_affect_a_running_batch(serve, monkeypatch):
    """A malformed image is refused while a batch runs, which is answered."""
    client, started, go_on = serve(), threading.Event(), threading.Event()

    def run(self, batch, signature_name=None):
        started.set()
        assert go_on.wait(10)
        return {"output": batch["input"].reshape(len(batch["input"]), 3)}

    monkeypatch.setattr("app.engines.simulated.SimulatedEngine.run", run)
    neighbors = []
    other = client.application.test_client()
    thread = threading.Thread(target=lambda: neighbors.append(post(other, bright(1))))
    thread.start()
    assert started.wait(10)
    assert "picture[0]" in error(post(client, b"broken"), 400)
    assert not neighbors
    go_on.set()
    thread.join()
    assert neighbors[0].json == named(1)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        (b"", "picture[0]: is empty"),
        (b"hello", "picture[0]: expected a picture of at least one pixel"),
        (saved(colors())[:500], "picture[0]: the picture is damaged or cut off"),
    ],
)
def test_malformed_image_is_a_400(client, file, expected):
    """The 400 names the image, alone or among others, and the reason."""
    assert error(post(client, file), 400).startswith(expected)
    response = client.post("/predict", data=file, content_type="image/png")
    assert error(response, 400).startswith(expected)
    text = error(post(client, bright(1), file, bright(2)), 400)
    assert text.startswith(expected.replace("[0]", "[1]"))


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\0\x18ftypheic\0\0\0\0",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"<?xml version='1.0'?><svg/>",
        b"%!PS-Adobe-3.0 EPSF-3.0\n",
        saved(np.zeros((8, 8), np.uint8), "ICO"),
    ],
    ids=["HEIC", "SVG", "SVG with a declaration", "EPS", "ICO"],
)
def test_other_picture_without_a_content_type_is_refused_as_one(client, body):
    """The text names the formats; JSON is not expected of such a body."""
    response = client.post("/predict", data=body)
    text = error(response, 400)
    assert text.startswith("picture[0]: expected a picture of at least one pixel")


def test_image_over_40_megapixels_is_a_413(client):
    """An image of more than 40 megapixels is too large."""
    large = of_size(saved(picture("1")), 8000, 6000)
    assert "more than 40 megapixels" in error(post(client, large), 413)


@pytest.mark.parametrize("files", [65, 100, 1000])
def test_multipart_with_too_many_images_is_a_413(client, files):
    """More than 64 files in one request are refused, however many."""
    text = error(post(client, *[b"x"] * files), 413)
    assert text in (
        f"{files} pictures in one request, at most 64",
        "more than 64 pictures and fields in one form",
    )


@pytest.mark.parametrize(("fields", "status"), [(79, 200), (80, 413), (900, 413)])
def test_multipart_parts_are_limited(client, fields, status):
    """Besides an image a form may have 79 other fields."""
    data = {f"field{number}": "x" for number in range(fields)}
    data["file"] = (io.BytesIO(bright(2)), "product.png")
    assert client.post("/predict", data=data).status_code == status


def multipart(disposition: bytes) -> bytes:
    """Return a form of one part with these headers."""
    return b"--edge\r\n" + disposition + b"\r\n\r\nz\r\n--edge--"


DISPOSITION = b"Content-Disposition: form-data"
NO_FILE = 'no field "file" with a picture in the form; fields given: '


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        (EDGE[:19], form(bright(1))[0], "multipart/form-data without a boundary"),
        (EDGE + "s", form(bright(1))[0], "not the form that its Content-Type says"),
        (EDGE, form(bright(1))[0][:-30], "is cut off"),
        (EDGE, multipart(b"X: y"), "a part of the form has no Content-Disposition"),
        (EDGE, b"--edge--\r\n", NO_FILE + "none"),
        (None, form(bright(1), field="image"), NO_FILE + "image"),
        (EDGE, multipart(DISPOSITION), "in the form; fields given: "),
        (
            EDGE,
            multipart(DISPOSITION + b'; name="file"'),
            'the field "file" has no filename, so it is text and not a file',
        ),
        (
            EDGE,
            multipart(DISPOSITION + b";a=b" * 2048),
            "a part of the form has a header of more than 8192 bytes",
        ),
    ],
    ids=[
        *("no boundary", "another boundary", "truncated", "no disposition", "no field"),
        *("another field", "a field without a name", "text", "a long header"),
    ],
)
def test_malformed_multipart_is_a_400(client, content_type, body, expected):
    """The 400 says what is wrong with the form."""
    headers = {"Content-Type": content_type}
    if content_type is None:
        body, headers = body
    response = client.post("/predict", data=body, headers=headers)
    assert expected in error(response, 400)


@pytest.mark.parametrize("top", ["0", "-1", "1.0", "", "a", "1" * 5000, "²"])
def test_invalid_top_is_a_400(client, top):
    """Top is a whole number of 1 or more."""
    text = error(post(client, bright(1), path=f"/predict?top={top}"), 400)
    assert text.startswith("top: expected a whole number, 1 or more, given ")
    assert len(text) < 120


@pytest.mark.parametrize("top", [3, 4, 999_999])
def test_top_above_the_number_of_classes_lists_all(client, top):
    """A client need not know how many classes a model has."""
    response = post(client, bright(2), path=f"/predict?top={top}")
    assert [each["class_name"] for each in response.get_json()] == [
        "right",
        "left",
        "middle",
    ]


@pytest.mark.parametrize(
    "image_format", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"]
)
@pytest.mark.parametrize(
    "content_type", ["", "application/x-www-form-urlencoded", "application/json"]
)
def test_picture_is_known_by_its_first_bytes(client, image_format, content_type):
    """Tools such as curl don't say what a body is."""
    body = saved(np.full((1, 3), 10, np.uint8), image_format)
    headers = {"Content-Type": content_type} if content_type else {}
    response = client.post("/predict", data=body, headers=headers)
    assert response.status_code == 200
    assert set(response.get_json()) == {"class_id", "class_name", "score"}


def test_pictures_for_a_named_model(tmp_path, client_of):
    """Pictures go to any model: as /predict?model=, and in V1 with V1's answer."""
    write_model(tmp_path)
    write_model(tmp_path / "other", IMAGE)
    (tmp_path / "other" / "till").rename(tmp_path / "gray")
    client = client_of(model_dir=tmp_path, default_model="till")
    scores = [10.0, 20.0, 200.0]
    response = post(client, bright(2), path="/predict?model=gray")
    assert sorted(response.get_json()["predictions"][0]) == scores
    assert post(client, bright(2)).get_json()["class_name"] == "right"
    assert "no model 'x'" in error(
        post(client, bright(2), path="/predict?model=x"), 404
    )
    path = "/v1/models/gray:predict"
    for response in (
        post(client, bright(2), path=path),
        client.post(path, data=bright(2)),
    ):
        assert sorted(response.get_json()["predictions"][0]) == scores


def test_json_of_any_type_is_json_in_v1(client):
    """TensorFlow Serving ignores the Content-Type."""
    body = json.dumps({"instances": [[[[1], [2], [3]]]]}).encode()
    for content_type in ("image/png", "multipart/form-data", "text/plain"):
        response = client.post(
            "/v1/models/till:predict", data=body, content_type=content_type
        )
        assert response.get_json() == {"predictions": [[1.0, 2.0, 3.0]]}


def test_image_for_a_model_without_image_is_a_400(serve):
    """An image for a model without [image] is a 400 with this reason."""
    client = serve(None)
    expected = (
        "model 'till' takes no pictures: its basket.toml has no [image] with size, "
        "mode and scale"
    )
    assert error(post(client, bright(1)), 400) == expected
    response = client.post("/predict", data=bright(1), content_type="image/png")
    assert error(response, 400) == expected
    no_form = {"Content-Type": "multipart/form-data"}
    response = client.post("/predict", data=b"", headers=no_form)
    assert error(response, 400) == expected


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
def test_image_table_that_does_not_fit_the_model(serve, image, simulation, expected):
    """Such a model is not ready, with both shapes in the error."""
    response = serve(image, wait=False, **simulation)
    response.application.wsgi_app.server.loader.wait(10)
    assert expected in response.get("/readyz").json["error"]
