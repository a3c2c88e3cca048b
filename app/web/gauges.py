"""The gauges of /metrics that are computed at each scrape."""

from collections import Counter, defaultdict
from collections.abc import Iterable

from app.repository.catalog import Catalog
from app.repository.served import ServedModel
from app.telemetry import Gauges
from app.web.page.observed import Observed
from app.web.page.processes import engines, processes

_MIB = 1 << 20


def current(catalog: Catalog, observed: Observed) -> Gauges:
    """Return what /metrics has of models and versions, and the memory in use."""
    problems, names, models = catalog.problems(), catalog.names(), catalog.models()
    states: Counter[tuple[str, ...]] = Counter(
        (name, each.state.value) for name in names for each in catalog.status(name)
    )
    number = engines(processes(observed.notes))
    return {
        "basket_model_problems": {
            (name,): len(problems.get(name, ())) for name in names
        },
        "basket_model_versions": states,
        "basket_queue_limit_rows": {
            (each.name, str(each.version)): number * each.max_rows for each in models
        },
        **_traffic(catalog, models),
        **_memory(observed),
    }


def _traffic(catalog: Catalog, models: Iterable[ServedModel]) -> Gauges:
    """Return the share of each version that is served, and the step of rollouts."""
    shares: dict[tuple[str, ...], float] = {}
    steps: dict[tuple[str, ...], float] = {}
    served: defaultdict[str, list[int]] = defaultdict(list)
    for each in models:
        served[each.name].append(each.version)
    for name in catalog.names():
        routes, rollout = catalog.routes(name)
        for version, share in routes.shares(served[name], rollout).items():
            shares[name, str(version)] = share
        if rollout is not None and rollout.candidate is not None:
            steps[name, str(rollout.candidate)] = rollout.phase + 1
    return {"basket_traffic_share": shares, "basket_rollout_step": steps}


def _memory(observed: Observed) -> Gauges:
    """Return the memory of the newest sample, which is at most a second old."""
    sample = next(observed.samples.newest_first(), None)
    if sample is None:
        return {}
    gpus = sample["gpus"]
    return {
        "basket_memory_bytes": {(): sample["memory_mib"] * _MIB},
        "basket_gpu_memory_bytes": {
            (str(gpu["number"]),): gpu["memory_mib"] * _MIB for gpu in gpus
        },
        "basket_gpu_memory_used_bytes": {
            (str(gpu["number"]),): gpu["used_mib"] * _MIB for gpu in gpus
        },
    }
