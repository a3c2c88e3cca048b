"""nginx: wrk through deploy/nginx.conf, with keep-alive connections upstream."""

import tempfile
from pathlib import Path

from bench import wrk
from bench.reliability.report import Report
from bench.reliability.set_up import GOOD, device, simulated
from testing.nginx import proxy
from testing.open_loop_requests import rows_request

_CONNECTIONS = 64


def nginx(seconds: float = 10, app: str = GOOD) -> Report:
    """Drive wrk through nginx for so long; it wants Debian's nginx and wrk."""
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
    report = Report("nginx")
    report.notes += [
        f"Simulated device, 1 ms a batch; {_CONNECTIONS} connections of wrk for "
        f"{seconds:.0f} s: {seen.rate:,.0f} requests/s, "
        f"p99 {seen.p99_s * 1000:.1f} ms.",
        *logged[:3],
    ]
    counts = {
        "requests without an answer": seen.errors,
        "answers other than 2xx": seen.not_2xx,
        "lines in nginx's error log": len(logged),
    }
    for what, count in counts.items():
        report.promise(what, "0", count, held=not count)
    return report
