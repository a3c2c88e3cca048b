"""The models and keys of the servers that the contract is asked of."""

from pathlib import Path

from testing.server import simulated_models
from tests.support.user_code import add_service

CLIENT_KEY, ADMIN_KEY = "client", "admin"
LIMIT_BYTES = 100_000
_WORDS = """
EXAMPLE = {"text": "two words"}


def preprocess(instance):
    if "text" not in instance:
        raise BadInput("expected a text")
    return [float(len(instance["text"].split()))]


def postprocess(row):
    return {"words": int(row[0])}
"""
_PICTURES = """
[image]
size = [2, 2]
mode = "RGB"
scale = "none"
classes = "classes.json"
"""


def write_models(folder: Path) -> None:
    """Write the models, which answer at once.

    `echo`, the default, has versions 3 and 7, the labels old and new, and returns the
    first two of three floats; `pictures` takes pictures of 2 x 2 and has classes;
    `words` has a service.py; `late` and `slow` take longer than a deadline of 200 ms.
    """
    echo = {"base_ms": 0, "input_shape": [3], "outputs": 2}
    simulated_models(
        folder,
        echo=echo,
        pictures={"base_ms": 0, "input_shape": [2, 2, 3], "outputs": 3},
        late={"base_ms": 1000, "input_shape": [3], "outputs": 2},
        slow={"base_ms": 1000, "input_shape": [3], "outputs": 2},
    )
    (folder / "echo" / "1").rename(folder / "echo" / "3")
    simulated_models(folder / "new", echo=echo)
    (folder / "new" / "echo" / "1").rename(folder / "echo" / "7")
    (folder / "new" / "echo").rmdir()
    (folder / "new").rmdir()
    (folder / "echo" / "basket.toml").write_text("[labels]\nold = 3\nnew = 7\n")
    (folder / "pictures" / "basket.toml").write_text(_PICTURES)
    (folder / "pictures" / "classes.json").write_text('["red", "green", "blue"]')
    code = f"from app import BadInput\n{_WORDS}"
    device = {"base_ms": 0, "input_shape": [1], "outputs": 1}
    add_service(folder, "words", code, simulated=device)
