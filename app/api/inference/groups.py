"""Requests whose rows have unlike shapes: a job for each shape, and one answer."""

from collections.abc import Callable
from functools import partial

from app.api.exchange import Exchange
from app.batching.interfaces import Runner
from app.batching.job import Job, JobGroup
from app.codec.uneven import Uneven
from app.engines.base import Tensors


async def answered_in_groups(
    exchange: Exchange,
    runner: Runner,
    uneven: Uneven,
    make_job: Callable[[Tensors], Job],
) -> Job:
    """Return the answered job of a request with one for each shape of its rows.

    Raises:
        BasketError: it is refused.
    """
    group = JobGroup([make_job(each) for each in uneven.groups], uneven.joined)
    group.wake = exchange.wake
    group.reserve_s = group.parts[0].reserve_s
    group.traceparent = exchange.traceparent
    # There may be as many jobs as rows.
    await exchange.offload(partial(group.submit, runner))
    exchange.job = group
    exchange.rows = group.rows
    await exchange.answered(group)
    return group
