"""A model whose queue is full, beside another one on the same server."""

import asyncio
import json
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from testing.open_loop import client_of
from testing.open_loop_requests import Request
from testing.processes import cpu_s, raise_descriptor_limit
from testing.server import serving, simulated_models

# The queue's limit.
ROWS = 1024
REFUSED = 400


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a quick model and two that can be jammed."""
    raise_descriptor_limit()
    folder = tmp_path_factory.mktemp("models")
    simulated_models(folder, quick={}, one={}, many={})
    with serving(
        *("--threads=20", "--worker-connections=4096"),
        app="tests.support.jammed:app",
        check_exit=False,
        model_dir=str(folder),
        request_timeout_ms="200000",
    ) as server:
        yield server


def row(model, width=1, at_s=0.0, value=1.0):
    body = json.dumps({"instances": [[value] * width]}).encode()
    path = f"/v1/models/{model}:predict"
    return Request(at_s, body, {"predictions": [[value]]}, path=path)


@asynccontextmanager
async def full_queue(client, model, widths):
    """Jam a model and fill its queue within the block, with a row of each width."""
    # Some rows may be in the jammed batch, and more than fit are refused.
    requests = [row(model, value=-1.0), *(row(model, width) for width in widths)]
    asked = [asyncio.create_task(client.ask(request)) for request in requests]
    series = f'basket_queue_rows{{model="{model}",version="1"}}'
    try:
        while await client.total(series) != ROWS:
            await asyncio.sleep(0.05)
        yield
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def refusals(server, model, widths):
    """Return CPU seconds of a refusal by a full model, and another one's outcomes."""
    async with client_of(server.port) as client, full_queue(client, model, widths):
        quick = asyncio.create_task(
            client.open_loop([row("quick", at_s=n / 20) for n in range(20)])
        )
        began_s = cpu_s(server.workers())
        refused = [await client.ask(row(model)) for _ in range(REFUSED)]
        each_s = (cpu_s(server.workers()) - began_s) / REFUSED
        assert Counter(one.status for one in refused) == {503: REFUSED}
        return each_s, await quick


def test_full_queue_does_not_delay_the_admission_of_other_models(server):
    """A refusal costs the same, however many shapes the rows in the full queue have.

    Else refusals keep the event loop busy, which admits the requests of all models.
    """
    one_s, _ = asyncio.run(refusals(server, "one", [1] * (ROWS + 64)))
    many_s, quick = asyncio.run(refusals(server, "many", range(1, ROWS + 65)))
    assert all(one.is_good() for one in quick)
    assert many_s < 3 * one_s
