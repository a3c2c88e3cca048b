"""basic-pitch, which finds notes in music: its SavedModel, TFLite and ONNX files."""

import json
import os
import subprocess
import sys
import wave

import numpy as np
import pytest

from testing.server import ROOT, serving

PACKAGE = ROOT / ".venv-basic-pitch"
FILES = PACKAGE / "basic_pitch" / "saved_models" / "icassp_2022"
SCRIPT = ROOT / "tests" / "support" / "basic_pitch_notes.py"
RATE_HZ = 22_050
NOTE_S = 0.6
# C4, E4, G4, C5, A4 as MIDI has them.
PITCHES = [60, 64, 67, 72, 69]

pytestmark = pytest.mark.skipif(
    not (PACKAGE / "done").exists(),
    reason="no .venv-basic-pitch; `make test` installs it",
)


def _play(file):
    """Write the pitches as sine waves, one after the other."""
    times = np.arange(int(RATE_HZ * NOTE_S)) / RATE_HZ
    hz = 440 * 2 ** ((np.array(PITCHES) - 69) / 12)
    sound = 0.5 * np.sin(2 * np.pi * hz[:, None] * times)
    with wave.open(str(file), "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(RATE_HZ)
        out.writeframes((sound * 32767).astype("<i2").tobytes())


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return the notes by the package itself, and through a server of its files."""
    folder = tmp_path_factory.mktemp("basic_pitch")
    _play(folder / "notes.wav")
    models = folder / "models"
    for name, file, target in (
        ("saved_model", "nmp", "1"),
        ("tflite", "nmp.tflite", "1/model.tflite"),
        ("onnx", "nmp.onnx", "1/model.onnx"),
    ):
        path = models / name / target
        path.parent.mkdir(parents=True)
        path.symlink_to(FILES / file)
    # Warm batches of 64 windows, of two seconds each, would take most of the time.
    settings = {"model_dir": str(models), "ready": False, "max_batch_size": "4"}
    with serving("--threads=4", **settings) as server:
        server.wait_until_loaded()
        ran = subprocess.run(
            [
                sys.executable,
                SCRIPT,
                folder / "notes.wav",
                f"http://127.0.0.1:{server.port}",
            ],
            check=False,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(PACKAGE), "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        assert ran.returncode == 0, ran.stderr[-3000:] + server.log.read_text()[-3000:]
    return json.loads(ran.stdout)


def test_windows_of_the_music_are_several_rows(found):
    """They are sent in one request, where the package computes one after the other."""
    assert found["windows"] > 1


@pytest.mark.parametrize("model", ["saved_model", "tflite", "onnx"])
def test_notes_are_those_of_the_package(found, model):
    """The same pitches, times and bends; only the loudness is rounded otherwise."""
    own, through = (found["notes"][model][whose] for whose in ("own", "through"))
    assert [pitch for _, _, pitch, _, _ in own] == PITCHES
    for one, other in zip(own, through, strict=True):
        assert (one[:3], one[4]) == (other[:3], other[4])
        assert one[3] == pytest.approx(other[3], abs=1e-5)
