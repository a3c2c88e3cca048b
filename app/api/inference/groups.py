"""Requests whose rows have unlike shapes: a job for each shape, and one answer."""

from collections.abc import Callable

from app.api.exchange import Exchange
from app.batching.interfaces import Runner
from app.batching.job import Answer, Job, joined
from app.codec.uneven import Uneven
from app.engines.base import Tensors
from app.errors import Abandoned


async def answered_in_groups(
    exchange: Exchange,
    runner: Runner,
    uneven: Uneven,
    make_job: Callable[[Tensors], Job],
) -> Answer:
    """Return the answer to a request with a job for each shape of its rows.

    Raises:
        BasketError: the error of the first job that fails; the others are dropped.
    """
    jobs = [make_job(group) for group in uneven.groups]

    def submit() -> None:
        for job in jobs:
            runner.submit(job)

    try:
        # There may be as many jobs as rows.
        await exchange.offload(submit)
        exchange.job = jobs[0]
        exchange.rows = sum(job.rows for job in jobs)
        answers = [await exchange.answered(job) for job in jobs]
    except BaseException:
        for job in jobs:
            job.fail(Abandoned("another row of the same request failed"))
        raise
    return joined(answers, uneven.joined([each.outputs for each in answers]))
