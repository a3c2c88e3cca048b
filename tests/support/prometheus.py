"""Debian's Prometheus and promtool, with the alert rules of deploy/."""

import contextlib
import json
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from testing.server import ROOT, free_port, wait_until

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="Debian's package prometheus is not installed",
)


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    (group,) = YAML(typ="safe").load(RULES)["groups"]
    return list(group["rules"])


def promtool(*args: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool."""
    return subprocess.run(
        ["promtool", *map(str, args)], capture_output=True, text=True, check=False
    )


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str) -> Any:
        """Return the data of an answer of the API."""
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}", timeout=10) as reply:
            return json.load(reply)["data"]

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        found = self.get("alerts")["alerts"]
        return [each["labels"] for each in found if each["state"] == "firing"]

    def is_up(self) -> bool:
        try:
            return self.get("status/runtimeinfo") is not None
        except OSError:
            return False


@contextlib.contextmanager
def prometheus(folder: Path, *ports: int) -> Iterator[Prometheus]:
    """Scrape Basket on these ports each second until the end of the block.

    The alerts are those of deploy/, which fire after a second.
    """
    short = [{**each, "for": "1s"} for each in rules()]
    group = {"name": "basket", "interval": "1s", "rules": short}
    # JSON is YAML.
    (folder / "alerts.yml").write_text(json.dumps({"groups": [group]}))
    targets = [f"127.0.0.1:{port}" for port in ports]
    scraped = {"job_name": "basket", "static_configs": [{"targets": targets}]}
    times = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config = folder / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": times,
                "rule_files": ["alerts.yml"],
                "scrape_configs": [scraped],
            }
        )
    )
    port = free_port()
    command = [
        *("prometheus", f"--config.file={config}"),
        *(f"--storage.tsdb.path={folder / 'data'}", "--log.level=warn"),
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        started = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(started.is_up, 60, (folder / "log").read_text)
        yield started
    finally:
        process.terminate()
        process.wait()
