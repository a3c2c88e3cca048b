"""nginx: wrk through deploy/nginx.conf, with keep-alive connections upstream."""

import tempfile
from pathlib import Path

from bench import wrk
from bench.reliability.report import Report
from bench.reliability.server import GOOD, device, simulated
from testing.nginx import proxy
from testing.open_loop_requests import rows_request

_CONNECTIONS = 64


def nginx(seconds: float = 10, app: str = GOOD) -> Report:
    """Drive wrk through nginx; needs Debian's nginx and wrk."""
    wrk.require()
    request = rows_request(0, 1)
    with (
        simulated(device(base_ms=1, per_row_ms=0), "--threads=20", app=app) as server,
        tempfile.TemporaryDirectory() as name,
        proxy(Path(name), server.port) as front,
    ):
        body = Path(name) / "body.json"
        body.write_bytes(request.body)
        url = f"http://127.0.0.1:{front.port}{request.path}"
        seen = wrk.drive(url, [body], "application/json", _CONNECTIONS, seconds)
        logged = front.log.read_text().splitlines()
    note = (
        f"Simulated device, 1 ms a batch; {_CONNECTIONS} connections of wrk for "
        f"{seconds:.0f} s: {seen.rate:,.0f} requests/s, p99 {seen.p99_s * 1000:.1f} ms."
    )
    report = Report("nginx", [note, *logged[:3]])
    report.none_of("requests without an answer", range(seen.errors))
    report.none_of("answers other than 2xx", range(seen.not_2xx))
    report.none_of("lines in nginx's error log", logged)
    return report
