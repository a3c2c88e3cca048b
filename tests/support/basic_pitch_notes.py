"""Notes of basic-pitch by itself, and with a Basket in place of its model.

Run as a script with basic-pitch's folder on PYTHONPATH: a .wav file, and a server's
address. Prints JSON: by file of the model, the notes of `predict` and those of the same
windows, answered by the server and given to the package's own code for notes.
"""

import contextlib
import json
import sys
import types
from pathlib import Path
from urllib.request import Request, urlopen

import numpy as np


def _leave_out_numba():
    """Let numba, a compiler of 200 MB, be imported; no compiled code is run here."""

    def plain(*args, **_):
        return args[0] if args and callable(args[0]) else lambda function: function

    names = ("jit", "njit", "guvectorize", "vectorize", "stencil")
    sys.modules["numba"] = types.ModuleType("numba")
    sys.modules["numba"].__dict__.update(dict.fromkeys(names, plain), prange=range)


# The package's names of the outputs, in the order of the ONNX file's.
_ONNX_NAMES = {
    "StatefulPartitionedCall:1": "note",
    "StatefulPartitionedCall:2": "onset",
    "StatefulPartitionedCall:0": "contour",
}


def _ask(url, model, windows):
    body = json.dumps({"instances": windows.tolist()}).encode()
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{url}/v1/models/{model}:predict", body, headers)) as reply:
        rows = json.load(reply)["predictions"]
    return {
        _ONNX_NAMES.get(name, name): np.array([row[name] for row in rows], np.float32)
        for name in rows[0]
    }


def _plain(notes):
    return [
        [
            float(start),
            float(end),
            int(pitch),
            float(loudness),
            [*map(int, bends or ())],
        ]
        for start, end, pitch, loudness, bends in sorted(
            notes, key=lambda note: note[:3]
        )
    ]


def main(audio, url):
    import basic_pitch  # noqa: PLC0415
    from basic_pitch import inference, note_creation  # noqa: PLC0415
    from basic_pitch.constants import (  # noqa: PLC0415
        AUDIO_N_SAMPLES,
        AUDIO_SAMPLE_RATE,
        FFT_HOP,
    )

    overlap = 30 * FFT_HOP
    parts = list(inference.get_audio_input(audio, overlap, AUDIO_N_SAMPLES - overlap))
    windows = np.concatenate([window for window, *_ in parts])
    (*_, length) = parts[0]
    folder = Path(basic_pitch.__file__).parent / "saved_models" / "icassp_2022"
    found = {}
    for model, file in {
        "saved_model": "nmp",
        "tflite": "nmp.tflite",
        "onnx": "nmp.onnx",
    }.items():
        _, _, own = inference.predict(audio, inference.Model(folder / file))
        outputs = {
            name: inference.unwrap_output(array, length, 30)
            for name, array in _ask(url, model, windows).items()
        }
        # As `predict` calls it: notes of at least 127.7 ms.
        shortest = round(127.7 / 1000 * AUDIO_SAMPLE_RATE / FFT_HOP)
        _, through = note_creation.model_output_to_notes(
            outputs, onset_thresh=0.5, frame_thresh=0.3, min_note_len=shortest
        )
        found[model] = {"own": _plain(own), "through": _plain(through)}
    return {"windows": len(windows), "notes": found}


if __name__ == "__main__":
    _leave_out_numba()
    with contextlib.redirect_stdout(sys.stderr):
        _result = main(*sys.argv[1:])
    print(json.dumps(_result))
