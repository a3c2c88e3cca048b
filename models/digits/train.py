"""Train the example model and write the example requests.

The model classifies handwritten digits. Its data, 1797 scans of 8x8 pixels, comes with
scikit-learn, so nothing is downloaded.

Run from anywhere:

    .venv/bin/python models/digits/train.py

It writes models/digits/1/model.keras, and for each digit samples/<digit>.json and
samples/<digit>.png from a scan of the test set. If the accuracy on the test set is
below 97 %, it writes nothing and fails.
"""

import io
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import keras
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
MODEL_PATH = HERE / "1" / "model.keras"
SAMPLES = HERE.parent.parent / "samples"

SEED = 7
HELD_OUT = 0.2
EPOCHS = 40
BATCH_SIZE = 32
LEAST_ACCURACY = 0.97

DIGITS = 10
SCAN_SIDE = 8
SCAN_MAX = 16  # The largest value of a pixel.
PNG_SIDE = 128
SURE = 0.99  # The least probability of a sample's digit.


def split_scans() -> list[np.ndarray]:
    """Return training and test scans, and the digits of both; always the same split.

    Scans are (count, 8, 8, 1), from 0 to 1.
    """
    digits = load_digits()
    scans = (digits.images / SCAN_MAX).astype(np.float32)[..., np.newaxis]
    return train_test_split(
        scans,
        digits.target,
        test_size=HELD_OUT,
        stratify=digits.target,
        random_state=SEED,
    )


def build_model() -> keras.Model:
    """Return the untrained model."""
    layers = keras.layers
    image = keras.Input((SCAN_SIDE, SCAN_SIDE, 1), name="image")
    x = layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    x = layers.Conv2D(32, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D()(x)
    x = layers.Dropout(0.25)(x)
    x = layers.Flatten()(x)
    x = layers.Dense(48, activation="relu")(x)
    x = layers.Dropout(0.4)(x)
    digit = layers.Dense(DIGITS, activation="softmax", name="digit")(x)
    return keras.Model(image, digit, name="digits")


def train(scans: np.ndarray, digits: np.ndarray) -> keras.Model:
    """Return a model trained on the given scans, without its optimizer."""
    model = build_model()
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy")
    model.fit(scans, digits, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)
    # A model that was never compiled is saved without its optimizer.
    return keras.Model(model.input, model.output, name=model.name)


def to_png(scan: np.ndarray) -> bytes:
    """Return a scan as a grayscale PNG, each pixel enlarged to a square."""
    grey = np.rint(scan[..., 0] * 255).astype(np.uint8)
    image = Image.fromarray(grey).resize((PNG_SIDE, PNG_SIDE), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", optimize=True)
    return buffer.getvalue()


def from_png(png: bytes, resampling: Image.Resampling) -> np.ndarray:
    """Return a PNG resized to the shape and the range of a scan."""
    with Image.open(io.BytesIO(png)) as image:
        small = image.resize((SCAN_SIDE, SCAN_SIDE), resampling)
    return np.asarray(small, np.float32)[..., np.newaxis] / 255


def survives_png(model: keras.Model, scan: np.ndarray, digit: int) -> bool:
    """Return whether the model still predicts the digit from the scan's PNG."""
    png = to_png(scan)
    # basket.toml uses NEAREST.
    resampling = Image.Resampling
    filters = (resampling.NEAREST, resampling.BOX, resampling.BILINEAR)
    shrunk = np.stack([from_png(png, each) for each in filters])
    predictions = model.predict(shrunk, verbose=0).argmax(axis=1)
    return bool((predictions == digit).all())


def choose_samples(
    model: keras.Model,
    scans: np.ndarray,
    digits: np.ndarray,
    probabilities: np.ndarray,
) -> list[np.ndarray]:
    """Return for each digit, 0 first, a scan predicted with at least 0.99."""
    chosen = []
    for digit in range(DIGITS):
        sure = (digits == digit) & (probabilities[:, digit] >= SURE)
        candidates = np.flatnonzero(sure)
        surest_first = candidates[np.argsort(-probabilities[candidates, digit])]
        for index in surest_first:
            if survives_png(model, scans[index], digit):
                chosen.append(scans[index])
                print(f"sample {digit}: probability {probabilities[index, digit]:.5f}")
                break
        else:
            sys.exit(f"no test scan of {digit} makes a good sample; nothing written")
    return chosen


def write_sample(digit: int, scan: np.ndarray) -> None:
    """Write one scan as the JSON body of a request and as a PNG."""
    body = json.dumps({"instances": [scan.tolist()]}, separators=(",", ":"))
    (SAMPLES / f"{digit}.json").write_text(body + "\n", encoding="utf-8")
    (SAMPLES / f"{digit}.png").write_bytes(to_png(scan))


def main() -> None:
    """Train, evaluate on the test set, and write the model and the samples."""
    keras.utils.set_random_seed(SEED)
    scans, test_scans, digits, test_digits = split_scans()
    model = train(scans, digits)

    probabilities = model.predict(test_scans, verbose=0)
    accuracy = float((probabilities.argmax(axis=1) == test_digits).mean())
    print(f"accuracy on {len(test_scans)} test scans: {accuracy:.2%}")
    if accuracy < LEAST_ACCURACY:
        sys.exit(f"below {LEAST_ACCURACY:.0%}; nothing written")
    samples = choose_samples(model, test_scans, test_digits, probabilities)

    model.save(MODEL_PATH)
    for digit, scan in enumerate(samples):
        write_sample(digit, scan)
    print(f"wrote {MODEL_PATH} ({MODEL_PATH.stat().st_size:,} bytes) and {SAMPLES}")


if __name__ == "__main__":
    main()
