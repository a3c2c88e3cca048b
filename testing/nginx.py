"""Run Debian's nginx with deploy/nginx.conf in front of a server."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from testing.server import ROOT, Server, free_port, wait_until

CONFIG = ROOT / "deploy" / "nginx.conf"
# The lines that are changed; each stands in the file once.
_LISTENS = "    listen 80;\n"
_UPSTREAM = "    server basket:8000;\n"
# Debian's folder of nginx is not on every PATH.
NGINX = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
# What Debian's own nginx.conf has around it. The temporary folder is only accessible to
# the current user, so nginx runs as that user.
_MAIN = """
daemon off;
user root;
worker_processes 1;
pid {folder}/pid;
error_log stderr;
events {{}}
http {{
    # The status of each request's response from Basket, - if there is none.
    log_format forwarded '$upstream_status $request';
    access_log {folder}/access.log forwarded;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/basket.conf;
}}
"""


def adapted(listens: int, *upstreams: int) -> str:
    """Return deploy/nginx.conf with other ports, and nothing else changed."""
    text = CONFIG.read_text()
    assert text.count(_LISTENS) == text.count(_UPSTREAM) == 1
    servers = "".join(f"    server 127.0.0.1:{port};\n" for port in upstreams)
    text = text.replace(_LISTENS, f"    listen 127.0.0.1:{listens};\n")
    return text.replace(_UPSTREAM, servers)


@contextlib.contextmanager
def proxy(
    folder: Path, *upstreams: int, replacing: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run nginx in front of these ports; `replacing` maps lines to other lines."""
    port = free_port()
    folder.mkdir(exist_ok=True)
    text = adapted(port, *upstreams)
    for line, other in (replacing or {}).items():
        assert text.count(line) == 1, line
        text = text.replace(line, other)
    (folder / "basket.conf").write_text(text)
    main = folder / "nginx.conf"
    main.write_text(_MAIN.format(folder=folder))
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(NGINX), "-e", "stderr", "-c", str(main)],
            stdout=output,
            stderr=output,
        )
    server = Server(process, port, log)
    try:
        wait_until(lambda: _listens(server), 10, log.read_text)
        yield server
    finally:
        process.terminate()
        process.wait()


def _listens(server: Server) -> bool:
    assert server.process.poll() is None, server.log.read_text()
    with contextlib.suppress(OSError):
        return bool(server.request("GET", "/healthz").status)
    return False
