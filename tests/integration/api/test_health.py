"""Liveness of a real server whose device hangs."""

import threading

from testing.server import serving, simulated_models, wait_until

# The largest batch takes far longer than the request timeout, as on a hung device.
HANGS = {"base_ms": 0, "per_row_ms": 1500, "input_shape": [2], "outputs": 1}
ROWS = [[1.0, 2.0]] * 4


def test_liveness_fails_while_the_device_hangs(tmp_path, monkeypatch):
    """A device that hangs fails /healthz of each worker until it continues."""
    folder = simulated_models(tmp_path / "models", hangs=HANGS)
    run_dirs = tmp_path / "run"
    run_dirs.mkdir()
    monkeypatch.setenv("TMPDIR", str(run_dirs))
    limits = {"max_batch_size": "4", "request_timeout_ms": "500"}
    with serving("--workers=2", "--threads=4", model_dir=folder, **limits) as server:

        def health(path="/healthz"):
            return server.request("GET", path)

        assert health().status == 200
        responses = []
        client = threading.Thread(target=lambda: responses.append(server.predict(ROWS)))
        client.start()
        # From then on the other worker knows it, too.
        wait_until(lambda: any(run_dirs.glob("*/stuck/*")), 30)
        # Ten responses come from both workers.
        assert {health().status for _ in range(10)} == {503}
        assert health().json() == {
            "error": "no progress while requests wait: hangs version 1"
        }
        assert health("/v2/health/live").status == 503
        assert health("/readyz").status == 200
        wait_until(lambda: {health().status for _ in range(10)} == {200}, 30)
        client.join()
        assert responses[0].status == 504
