"""An [image] that is added to a served model, under load."""

import io
import json
from pathlib import Path

import pytest
from PIL import Image

from testing.server import serving, simulated_models
from tests.support.traffic import Traffic

SIDE, CLASSES = 4, ["black", "white"]
ROW = [[[0.25]] * SIDE] * SIDE
PICTURES = {"base_ms": 1, "input_shape": [SIDE, SIDE, 1], "outputs": len(CLASSES)}
WITHIN_S = 60


def _configure(folder: str, side: int) -> None:
    model = Path(folder) / "gray"
    (model / "classes.json").write_text(json.dumps(CLASSES))
    new = model / ".basket.toml"
    new.write_text(
        f'[image]\nsize = [{side}, {side}]\nmode = "L"\nscale = "0..1"\n'
        'classes = "classes.json"\n'
    )
    new.rename(model / "basket.toml")


def _picture() -> bytes:
    # Its first pixel is black and its second one white: the answer is their values.
    picture = Image.new("L", (SIDE, SIDE))
    picture.putpixel((1, 0), 255)
    file = io.BytesIO()
    picture.save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize("model_process", ["worker", "shared"])
def test_added_image_takes_effect_and_fails_no_request(tmp_path, model_process):
    """One that does not fit is a problem, and the model serves on without it."""
    folder = simulated_models(tmp_path, gray=PICTURES)
    options = {"model_dir": folder, "model_process": model_process}
    headers = {"Content-Type": "image/png"}
    with serving("--threads=4", "--workers=2", **options) as server:

        def classified():
            """Return whether all of several requests, to any worker, see a class."""
            replies = [
                server.request("POST", "/predict", _picture(), headers)
                for _ in range(8)
            ]
            expected = {"class_id": "1", "class_name": "white", "score": 1.0}
            return all(
                each.status == 200 and each.json() == expected for each in replies
            )

        readiness = []

        def shows_problem():
            readiness.append(server.request("GET", "/readyz"))
            return "problems" in readiness[-1].json()

        assert not classified()
        with Traffic(server.port, [ROW]) as traffic:
            _configure(folder, SIDE)
            server.wait_until(classified, WITHIN_S)
            _configure(folder, 2 * SIDE)
            server.wait_until(shows_problem, WITHIN_S)
            # Of one worker; the other one may show it later.
            ready = readiness[-1]
            assert classified()
        assert ready.status == 200
        (problem,) = ready.json()["problems"]["gray"]
        assert problem == (
            "version 1 serves with basket.toml as it was before, and could not be "
            "loaded again: [image] makes rows (8, 8, 1), the model takes (4, 4, 1)"
        )
        assert problem in server.log.read_text()
        assert traffic.failed == []
        assert {version for version, _ in traffic.answers} == {"1"}
