"""What service.py may give, with a model in each worker and in a shared process."""

import pytest

from tests.support.user_code import add_service, serving_code

CODE = """
import datetime

import numpy as np

GIVES = {
    "keys": {np.str_("a"): np.int8(1), np.int64(2): np.float32(0.5), b"c": np.bool_(1)},
    "big-endian": [np.arange(3, dtype=">i4"), np.array(0.5, ">f8")],
    "large": [2**70, (-(2**70), ())],
    "masked": np.ma.array([1.5, 2.5], mask=[False, True]),
    "records": np.array([(1, 2.5)], "i4,f8"),
    "long double": np.longdouble(0.5),
}
REFUSED = {
    "set": {"tags": [1, {2, 3}]},
    "tuple as a key": {(1, 2): 3},
    "complex": [1j],
}


def predict(model, batch):
    return [GIVES.get(name, name) for name in batch]


def postprocess(row):
    return REFUSED.get(row, row) if isinstance(row, str) else row
"""


@pytest.mark.parametrize("mode", ["worker", "shared"])
def test_values_of_numpy_and_large_integers_are_answered(tmp_path, mode):
    """They are the same in both, and what JSON can't hold is named with its place."""
    add_service(tmp_path, "odd", CODE)
    with serving_code(tmp_path, model_process=mode) as server:
        names = ["keys", "big-endian", "large", "masked", "records", "long double"]
        reply = server.predict(names)
        assert (reply.status, reply.json()) == (
            200,
            {
                "predictions": [
                    {"a": 1, "2": 0.5, "c": True},
                    [[0, 1, 2], 0.5],
                    [2**70, [-(2**70), []]],
                    [1.5, None],
                    [[1, 2.5]],
                    0.5,
                ]
            },
        )
        for name, text in [
            ("set", "predictions[1]['tags'][1] is of type set: it has no order: give"),
            ("tuple as a key", "predictions[1] has the key (1, 2) of type tuple: give"),
            (
                "complex",
                "predictions[1][0] is of type complex: give a list of its real",
            ),
        ]:
            refused = server.predict(["fine", name])
            assert refused.status == 500
            begin = f"service.py: postprocess gave what JSON can't hold: {text}"
            assert refused.json()["error"].startswith(begin)
