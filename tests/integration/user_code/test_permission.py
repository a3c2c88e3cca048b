"""Versions whose service.py the server does not run."""

import pytest

from testing.server import serving, wait_until
from tests.support.user_code import ECHO, add_neighbor, add_service, predict

CODE = "def postprocess(row):\n    return 'run'\n"
OFF = "it holds service.py, which runs only with BASKET_USER_CODE=on"
WRITABLE = "service.py is not run, as everybody may write the folder 1: chmod o-w 1"


@pytest.mark.parametrize("mode", ["worker", "shared"])
@pytest.mark.parametrize(
    ("setting", "problem"), [("off", OFF), ("on", WRITABLE)], ids=["off", "writable"]
)
def test_service_that_may_not_run_is_not_served(tmp_path, mode, setting, problem):
    """/readyz names the setting, or the command that makes the folder safe."""
    add_neighbor(tmp_path)
    version = add_service(tmp_path, "m", CODE, simulated=ECHO)
    if setting == "on":
        version.chmod(0o777)
    settings = {"model_process": mode, "user_code": setting}
    with serving(
        "--threads=4", ready=False, model_dir=str(tmp_path), **settings
    ) as server:
        server.wait_until_loaded(60)
        wait_until(lambda: predict(server, "neighbor", [[7]]) == (200, [[7]]), 30)
        ready = server.request("GET", "/readyz")
        assert ready.json()["not_ready"].keys() == {"m"}
        assert ready.json()["problems"] == {"m": [f"version 1: {problem}"]}
        assert predict(server, "m", [[5]])[0] in (404, 503)
