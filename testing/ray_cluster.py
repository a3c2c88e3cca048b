"""A Ray cluster of two nodes on this machine, driven as a user does: over HTTP."""

import contextlib
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ray.cluster_utils import Cluster

from testing.server import ROOT, Reply, Server, free_port, wait_until

# Ray takes 127.0.0.1 for the address of the machine's network.
HEAD, OTHER = "127.0.0.2", "127.0.0.3"
APPLICATIONS = "/api/serve/applications/"
# Seconds; a replica imports Ray and Basket on a busy machine.
WITHIN_S = 120
# It reports to its makers otherwise.
_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
# The proxy on the head asks the replicas of both nodes: docs/ray.md.
SPREAD = {"RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0"}
# Looks at an application keep two of Ray's processes busy.
_LONGEST_PAUSE_S = 0.25
_RUNNING = "RUNNING"
_TRIES = 3
# Processes find `app` where they were started; tests may run elsewhere.
_NODE = {
    "num_cpus": 2,
    "object_store_memory": 80 << 20,
    "env_vars": {"PYTHONPATH": str(ROOT)},
}


class RayCluster:
    """The head, another node, and the applications that Serve runs on them."""

    def __init__(self) -> None:
        self.port = free_port()
        self._dashboard_port, self._metrics_port = free_port(), free_port()
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={
                **_NODE,
                "node_ip_address": HEAD,
                "include_dashboard": True,
                "dashboard_port": self._dashboard_port,
                "metrics_export_port": self._metrics_port,
                # Ten seconds, if not set.
                "_system_config": {"metrics_report_interval_ms": 1000},
            },
        )
        self._other: Any = None

    def add_node(self) -> None:
        """Start the other node."""
        self._other = self._cluster.add_node(**_NODE, node_ip_address=OTHER)

    def kill_node(self) -> None:
        """Kill all processes of the other node."""
        self._cluster.remove_node(self._other, allow_graceful=False)

    def close(self) -> None:
        """Stop all nodes."""
        self._cluster.shutdown()

    def metrics(self) -> str:
        """Return what the head exports for Prometheus."""
        return _server(self._metrics_port).request("GET", "/metrics").body.decode()

    def deploy(self, args: Mapping[str, Any], **options: Any) -> None:
        """Deploy Basket; `options` are those of the deployment in a config file."""
        application = {
            "name": "basket",
            "import_path": "app.ray_serve:build",
            "route_prefix": options.pop("route_prefix", "/"),
            "args": dict(args),
            "deployments": [{"name": "Basket", **options}],
        }
        self._put(application)

    def delete(self) -> None:
        """Delete the application; the proxy stays."""
        self._put()

    def _put(self, *applications: Mapping[str, Any]) -> None:
        config = {
            "proxy_location": "HeadOnly",
            "http_options": {"host": "127.0.0.1", "port": self.port},
            "applications": applications,
        }
        reply = self._ask("PUT", json.dumps(config).encode())
        assert reply.status == 200, reply.body

    @property
    def address(self) -> str:
        """Where commands of Ray find the cluster: RAY_ADDRESS."""
        return str(self._cluster.address)

    def application(self) -> Any:
        """Return what Serve says of the application."""
        return json.loads(self._ask("GET").body)["applications"].get("basket", {})

    def replicas(self) -> list[Any]:
        """Return the replicas, in any state."""
        deployments = self.application().get("deployments", {})
        return list(deployments.get("Basket", {}).get("replicas", ()))

    def wait(self, status: str) -> Any:
        """Wait until the application has a status; return it."""
        self._wait_until(lambda: self.application().get("status") == status)
        return self.application()

    def wait_for_replicas(self, count: int, without: Collection[int] = ()) -> list[Any]:
        """Wait until so many replicas run and no others exist; return them.

        `without` are process ids of replicas that are to be gone.
        """

        def is_done() -> bool:
            found = self.replicas()
            states = [each["state"] for each in found]
            is_new = not {each.get("pid") for each in found} & set(without)
            is_deployed = self.application()["status"] == _RUNNING
            return is_deployed and is_new and states == [_RUNNING] * count

        self._wait_until(is_done)
        return self.replicas()

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        wait_until(
            *(condition, WITHIN_S),
            lambda: json.dumps(self.application(), indent=1),
            longest_pause_s=_LONGEST_PAUSE_S,
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send a request through the proxy."""
        return _server(self.port).request(method, path, body, headers)

    def _ask(self, method: str, body: bytes | None = None) -> Reply:
        headers = {"Content-Type": "application/json"}
        return _server(self._dashboard_port).request(
            method, APPLICATIONS, body, headers
        )


def _server(port: int) -> Server:
    return Server(None, port, None)  # type: ignore[arg-type]


@contextlib.contextmanager
def ray_cluster(environ: Mapping[str, str] | None = None) -> Iterator[RayCluster]:
    """Run a cluster of two nodes, with these variables."""
    os.environ |= {**_ENVIRONMENT, **(environ or {})}
    cluster = _started()
    try:
        cluster.add_node()
        yield cluster
    finally:
        cluster.close()


def _started() -> RayCluster:
    """Return a cluster with a head, for which Ray waits 30 s on a busy machine."""
    for _ in range(_TRIES - 1):
        with contextlib.suppress(Exception):  # Ray raises no other class
            return RayCluster()
    return RayCluster()
