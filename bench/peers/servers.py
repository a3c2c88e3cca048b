"""The servers that are compared, and how each is started."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from bench.load import Target
from bench.peers.others import PEERS, READY_WITHIN_S, Setting
from bench.prepared import Prepared
from testing.server import Server, metric_sum, serving

_LOADS = ("tiny", "mnet", "big", "policy")


_Serve = Callable[[Prepared, Setting], AbstractContextManager[Target]]


@dataclass(frozen=True)
class SetUp:
    """A server; all `settings` are tried in the first round, then the best one.

    `missing` returns what is not installed.
    """

    name: str
    title: str
    loads: tuple[str, ...]
    serve: _Serve
    settings: tuple[Setting, ...] = (Setting(),)
    missing: Callable[[], str | None] = lambda: None


def basket(*args: str, **settings: str) -> _Serve:
    """Return a function that serves Basket with these arguments and settings."""

    @contextlib.contextmanager
    def serve(prepared: Prepared, setting: Setting) -> Iterator[Target]:
        with serving(
            *args,
            root=setting.root,
            own_session=True,
            ready=False,
            model_dir=str(prepared.models),
            **settings,
        ) as server:
            target = Target(server.port, prepared, batches=partial(_batches, server))
            server.wait_until(target.answers, READY_WITHIN_S)
            yield target

    return serve


def _batches(server: Server) -> tuple[float, float]:
    return (
        metric_sum(server, "basket_batch_rows_sum"),
        metric_sum(server, "basket_batch_rows_count"),
    )


def _waits(*waits_ms: int, **environ: str) -> tuple[Setting, ...]:
    words = [name.replace("_", " ").lower() for name in environ]
    return tuple(
        Setting(
            ", ".join([f"waits {wait_ms} ms", *words]),
            {"WAIT_MS": str(wait_ms), **environ},
        )
        for wait_ms in waits_ms
    )


def _peer(
    name: str,
    title: str,
    loads: tuple[str, ...] = _LOADS,
    settings: tuple[Setting, ...] = (Setting(),),
) -> SetUp:
    return SetUp(name, title, loads, PEERS[name].serve, settings)


def _missing_openvino() -> str | None:
    return None if find_spec("openvino") else "openvino is not installed in .venv"


SET_UPS = {
    each.name: each
    for each in (
        SetUp(
            *("gunicorn", "Basket, Gunicorn", (*_LOADS, "growth")),
            basket("--threads=64"),
        ),
        SetUp(
            *("openvino", "Basket, OpenVINO", ("mnet",)),
            basket("--threads=64", engine="openvino"),
            missing=_missing_openvino,
        ),
        SetUp(
            *("shared", "Basket, shared model, 2 workers", ("tiny",)),
            basket("--workers=2", "--threads=32", model_process="shared"),
        ),
        _peer("service-streamer", "service-streamer", settings=_waits(10, 100)),
        _peer("mosec", "mosec", settings=_waits(10, 5, 1)),
        _peer("litserve", "LitServe", settings=_waits(10, 1, FAST_QUEUE="1")),
    )
}
# The same, served from the tree of another commit.
BEFORE = {
    each.name: replace(each, name=f"{each.name}-before", title=f"{each.title}, before")
    for each in (SET_UPS["gunicorn"], SET_UPS["shared"])
}
TITLES = {each.name: each.title for each in (*SET_UPS.values(), *BEFORE.values())}


def with_before(set_ups: Iterable[SetUp], commit: str, root: Path) -> Iterator[SetUp]:
    """Yield each set-up, and behind those in BEFORE the same served from `root`."""
    for each in set_ups:
        yield each
        if each.name in BEFORE:
            yield replace(BEFORE[each.name], settings=(Setting(commit, root=root),))
