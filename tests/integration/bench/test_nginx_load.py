"""wrk through deploy/nginx.conf, whose connections to Basket stay open."""

import shutil

import pytest

from testing import wrk
from testing.nginx import NGINX, proxy
from testing.open_loop_requests import rows_request
from testing.simulated import device, simulated

pytestmark = pytest.mark.skipif(
    NGINX is None or shutil.which("wrk") is None, reason="nginx and wrk are wanted"
)


def test_64_connections_through_nginx_lose_no_request(tmp_path):
    """Every request gets a 2xx, and nginx has no error in its log."""
    request = rows_request(0, 1)
    body = tmp_path / "body.json"
    body.write_bytes(request.body)
    with (
        simulated(device(base_ms=1, per_row_ms=0), "--threads=20") as server,
        proxy(tmp_path / "nginx", server.port) as front,
    ):
        url = f"http://127.0.0.1:{front.port}{request.path}"
        seen = wrk.drive(url, [body], "application/json", 64, 3)
        assert front.log.read_text() == ""
    assert seen.rate > 64
    assert (seen.errors, seen.not_2xx) == (0, 0)
