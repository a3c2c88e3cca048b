"""Pictures for a version whose preprocess decodes them, without [image]."""

import base64
import json

import pytest
from PIL import Image

from testing.pictures import saved
from tests.support.user_code import add_service, serving_code

CODE = """
import io

import numpy as np
from PIL import Image

from app import BadInput


def preprocess(data):
    if not isinstance(data, bytes):
        raise BadInput("expected a picture")
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert("RGB").resize((1, 1)), np.float32).ravel()


def postprocess(row):
    return ["red", "green", "blue"][row.argmax()]
"""
RGB = {"base_ms": 0, "input_shape": [3], "outputs": 3}
JPEG = {"Content-Type": "image/jpeg"}


@pytest.mark.parametrize("mode", ["worker", "shared"])
def test_picture_reaches_preprocess_as_its_bytes(tmp_path, mode):
    """As the whole body, in a form, and as base64; over /predict and V1."""
    add_service(tmp_path, "color", CODE, simulated=RGB)
    picture = saved(Image.new("RGB", (32, 32), (20, 200, 30)), "JPEG")
    form = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\n\r\n'
        + picture
        + b"\r\n--b--\r\n"
    )
    instances = [{"b64": base64.b64encode(picture).decode()}, "no picture"]
    with serving_code(tmp_path, model_process=mode) as server:
        for path in ("/predict", "/v1/models/color:predict"):
            reply = server.request("POST", path, picture, JPEG)
            assert reply.json() == {"predictions": ["green"]}, path
            headers = {"Content-Type": "multipart/form-data; boundary=b"}
            reply = server.request("POST", path, form, headers)
            assert reply.json() == {"predictions": ["green"]}, path
            body = json.dumps({"instances": instances[:1]}).encode()
            reply = server.request("POST", path, body)
            assert reply.json() == {"predictions": ["green"]}, path
            body = json.dumps({"instances": instances}).encode()
            reply = server.request("POST", path, body)
            assert reply.status == 400
            assert reply.json() == {"error": "instances[1]: expected a picture"}
        # Of a picture that Pillow can't read the client learns no more.
        reply = server.request("POST", "/predict", b"\xff\xd8\xff cut", JPEG)
        assert reply.status == 500
        assert reply.json()["error"].startswith("service.py: preprocess failed on ")
