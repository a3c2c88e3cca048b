"""The servers that are compared, each with what it is started with."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from bench.peers import others
from bench.peers.loads import Prepared
from bench.peers.running import Running
from bench.processes import wait
from testing.server import ROOT, metric_sum, serving

_EVERY = ("tiny", "mnet", "big", "policy", "growth")


@dataclass(frozen=True)
class Setting:
    """One way to set a server up: words for the table, and its environment.

    `root` is the tree that Basket is served from.
    """

    title: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)
    root: Path = ROOT


_Serve = Callable[[Prepared, Setting], AbstractContextManager[Running]]


@dataclass(frozen=True)
class SetUp:
    """A server: `settings` are tried in the first round, the best goes on.

    Where there are no rounds it has the first of them.

    `lacks` says what is missing to run it. `by_choice`: only where it is named.
    `ours`: Basket, whose engine can be measured bare.
    """

    name: str
    title: str
    loads: tuple[str, ...]
    serve: _Serve
    settings: tuple[Setting, ...] = (Setting(),)
    lacks: Callable[[], str | None] = lambda: None
    ours: bool = False
    by_choice: bool = False


def basket(*args: str, **settings: str) -> _Serve:
    """Return what starts Basket with these arguments and BASKET_ settings."""

    @contextlib.contextmanager
    def serve(prepared: Prepared, setting: Setting) -> Iterator[Running]:
        with serving(
            *args,
            root=setting.root,
            own_session=True,
            ready=False,
            model_dir=str(prepared.models),
            **settings,
        ) as server:

            def batches() -> tuple[float, float]:
                return (
                    metric_sum(server, "basket_batch_rows_sum"),
                    metric_sum(server, "basket_batch_rows_count"),
                )

            running = Running(server.port, prepared, batches=batches)
            wait(server.process, server.log, running.answers)
            yield running

    return serve


def _peer(name: str) -> _Serve:
    def serve(prepared: Prepared, setting: Setting) -> AbstractContextManager[Running]:
        return others.serve(name, prepared, setting.environ)

    return serve


def _lacks_openvino() -> str | None:
    return None if find_spec("openvino") else "openvino is not installed in .venv"


def _waits(*waits_ms: int, **environ: str) -> tuple[Setting, ...]:
    return tuple(
        Setting(
            ", ".join([f"waits {wait_ms} ms", *environ]).replace("_", " ").lower(),
            {"WAIT_MS": str(wait_ms), **environ},
        )
        for wait_ms in waits_ms
    )


SET_UPS = {
    each.name: each
    for each in (
        SetUp(
            "gunicorn",
            "Basket, Gunicorn",
            _EVERY,
            basket("--threads=64"),
            ours=True,
        ),
        SetUp(
            "openvino",
            "Basket, OpenVINO",
            ("mnet",),
            basket("--threads=64", engine="openvino"),
            lacks=_lacks_openvino,
        ),
        SetUp(
            "shared",
            "Basket, shared model, 2 workers",
            ("tiny",),
            basket("--workers=2", "--threads=32", model_process="shared"),
        ),
        SetUp(
            "service-streamer",
            "service-streamer",
            _EVERY[:4],
            _peer("service-streamer"),
            _waits(10, 100),
        ),
        SetUp("mosec", "mosec", _EVERY[:4], _peer("mosec"), _waits(10, 5, 1)),
        SetUp(
            "litserve",
            "LitServe",
            _EVERY[:4],
            _peer("litserve"),
            _waits(10, 1, FAST_QUEUE="1"),
        ),
        SetUp("bentoml", "BentoML", ("tiny", "big"), _peer("bentoml"), by_choice=True),
        SetUp(
            "ray-serve",
            "Ray Serve",
            _EVERY[:4],
            _peer("ray-serve"),
            _waits(10, 1),
            by_choice=True,
        ),
        SetUp(
            "pytriton",
            "NVIDIA pytriton",
            ("tiny", "big"),
            _peer("pytriton"),
            _waits(10, 1),
            by_choice=True,
        ),
    )
}
# The same, to be served from another commit's tree.
BEFORE = {
    each.name: replace(
        each, name=f"{each.name}-before", title=f"{each.title}, before", ours=False
    )
    for each in (SET_UPS["gunicorn"], SET_UPS["shared"])
}
TITLES = {each.name: each.title for each in (*SET_UPS.values(), *BEFORE.values())}


def with_before(set_ups: Iterable[SetUp], commit: str, root: Path) -> Iterator[SetUp]:
    """Put behind each of the set-ups in BEFORE the same served from `root`."""
    for each in set_ups:
        yield each
        if each.name in BEFORE:
            yield replace(BEFORE[each.name], settings=(Setting(commit, root=root),))
