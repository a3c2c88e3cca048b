"""The reason for which a model refuses a row, by TensorFlow's texts."""

import pytest

from app.engines.refusal import refusal
from app.errors import RefusedInput

INLINE = (
    "{{function_node __wrapped__PartitionedCall_Tin_1_Tout_1_device_/job:localhost/"
    "replica:0/task:0/device:CPU:0}} indices[3,0] = 1000 is not in [0, 500) "
    "[Op:PartitionedCall] name: "
)
TRACED = """Graph execution error:

Detected at node functional/string_lookup/Assert defined at (most recent call last):
  File "/home/me/train.py", line 7, in <module>

    model.export("models/mine/1")

assertion failed: [When `num_oov_indices=0` all inputs should be in vocabulary]
\t [[{{node functional/string_lookup/Assert}}]] [Op:__inference_call_281]"""
UNTRACED = """Graph execution error:

Detected at node map/DecodeImage defined at (most recent call last):
<stack traces unavailable>
Unknown image file format. One of JPEG, PNG required.
\t [[{{node map/DecodeImage}}]] [Op:__inference_call_710]"""
SEVERAL = """2 root error(s) found.
  (0) INVALID_ARGUMENT:  indices[0] = -7 is not in [0, 5)
\t [[{{node a/GatherV2}}]]
\t [[b/_9]]
  (1) INVALID_ARGUMENT:  indices[0] = -7 is not in [0, 5)
\t [[{{node a/GatherV2}}]]
0 successful operations. [Op:__inference_f_12]"""
ASSERTED = (
    "assertion failed: [Condition x < y did not hold] [x (model/x:0) = ] [500] "
    "[y (assert_less/y:0) = ] [100]"
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (INLINE, ": 1000 is not in [0, 500)"),
        (
            TRACED,
            ": assertion failed: [When `num_oov_indices=0` all inputs should be in "
            "vocabulary]",
        ),
        (UNTRACED, ": Unknown image file format. One of JPEG, PNG required."),
        (SEVERAL, ": -7 is not in [0, 5)"),
        (
            ASSERTED,
            ": assertion failed: [Condition x < y did not hold] [x = ] [500] [y = ] "
            "[100]",
        ),
        ("can't read /srv/models/m/1/words.txt", ": can't read words.txt"),
        ("error:/home/me/m/words.txt is gone", ": error:words.txt is gone"),
        ("no file:///home/me/m/words.txt", ": no words.txt"),
        ("see https://keras.io/guides/a/b", ": see https://keras.io/guides/a/b"),
        ("a //server/share/m/words.txt", ": a words.txt"),
        ("x" * 999, ": " + "x" * 200),
        ("", ""),
        ("Graph execution error:\n\n", ""),
    ],
)
def test_refusal_is_one_line_without_nodes_places_and_folders(text, reason):
    """The place of a value is that in the batch, which no client knows."""
    error = refusal("the model refuses this input", text)
    assert type(error) is RefusedInput
    assert error.status == 400
    assert str(error) == f"the model refuses this input{reason}"
