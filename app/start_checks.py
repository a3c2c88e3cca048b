"""Checks of settings and of Gunicorn's configuration, made before the server starts.

A configuration error raises; a setting without effect is one line for the log.
"""

import resource
import socket
from collections.abc import Iterator
from typing import Any

from app.errors import SettingsError
from app.settings import Settings

# Files that a worker opens besides its connections.
_OTHER_FILES = 50


def check_options(cfg: Any, *, has_own_worker: bool) -> None:
    """Refuse options of Gunicorn that Basket, or its own worker, does not support.

    Raises:
        SettingsError: one of them is set.
    """
    if cfg.preload_app:
        raise SettingsError("--preload: a model does not survive the fork")
    if not has_own_worker:
        return
    if cfg.proxy_protocol not in ("off", False):
        raise SettingsError(
            "--proxy-protocol: Basket speaks plain HTTP; put nginx in front "
            "(listen ... proxy_protocol), which sends X-Forwarded-For"
        )
    if "h2" in cfg.http_protocols or cfg.http2_cleartext != "off":
        raise SettingsError(
            "--http-protocols: Basket speaks HTTP/1.1; put nginx in front "
            "(http2 on), which speaks HTTP/2 to clients"
        )


def check_grpc(settings: Settings, cfg: Any, *, has_own_worker: bool) -> None:
    """Check that each worker can open the port of gRPC.

    Raises:
        SettingsError: another process has it, or the worker class does not serve gRPC.
    """
    if settings.grpc_bind is None:
        return
    name = f"BASKET_GRPC_BIND={settings.grpc_bind}"
    if not has_own_worker:
        raise SettingsError(
            f"{name}: --worker-class {cfg.worker_class_str} serves no gRPC: leave the "
            "option out"
        )
    host, _, port = settings.grpc_bind.rpartition(":")
    # Two servers that both allow others on their port would share its connections.
    try:
        with socket.create_server(
            (host.strip("[]"), int(port)),
            family=socket.AF_INET6 if ":" in host else socket.AF_INET,
        ):
            return
    except OSError as error:
        raise SettingsError(f"{name}: {error.strerror or error}") from None


def raise_file_limit(connections: int, *, ports: int = 1) -> list[str]:
    """Raise the file descriptor limit to what so many connections of each port need.

    Return a warning if the hard limit is lower.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = ports * connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return []
    is_allowed = hard == resource.RLIM_INFINITY or hard >= needed
    limit = needed if is_allowed else hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if is_allowed:
        return []
    return [
        f"{limit} open files are too few for --worker-connections={connections}: "
        f"ulimit -Hn {needed} or more is enough"
    ]


def settings_without_effect(
    settings: Settings, cfg: Any, *, has_gpus: bool, is_asynchronous: bool
) -> Iterator[str]:
    """Yield a line for each setting that has no, or not its full, effect here.

    `is_asynchronous`: requests of a worker are limited by connections, not threads.
    """
    if settings.batching_parameters_file is not None:
        # Imported only if needed: protobuf takes 7 MiB.
        from app.settings import batching_parameters  # noqa: PLC0415

        for note in batching_parameters.read(settings.batching_parameters_file).notes:
            yield f"BASKET_BATCHING_PARAMETERS_FILE: {note}"
    if settings.model is None and settings.model_name is not None:
        yield (
            f"BASKET_MODEL_NAME={settings.model_name!r} has no effect: BASKET_MODEL is "
            "not set, and models of BASKET_MODEL_DIR have the names of their folders"
        )
    if settings.request_log is None and settings.request_log_share < 1:
        yield "BASKET_REQUEST_LOG_SHARE has no effect: BASKET_REQUEST_LOG is not set"
    if not has_gpus:
        if settings.gpus is not None:
            yield "no GPU: BASKET_GPUS has no effect"
        if settings.gpu_memory_fraction is not None:
            yield "no GPU: BASKET_GPU_MEMORY_FRACTION has no effect"
    if is_asynchronous:
        number, what, option = (
            cfg.worker_connections,
            "connections",
            "--worker-connections",
        )
    else:
        number, what, option = cfg.threads, "threads", "--threads"
    if settings.model_process == "shared":
        number *= cfg.workers
    if settings.batching and number < settings.max_batch_size:
        yield (
            f"{number} {what} can't fill a batch of {settings.max_batch_size} with "
            f"single rows: {option}={settings.max_batch_size} or more can"
        )
