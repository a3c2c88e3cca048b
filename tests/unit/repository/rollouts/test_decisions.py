"""The proof of a version: when its rows run, and what is said of rows that differ."""

import numpy as np
import pytest

from app.batching.unbatched import Unbatched
from app.capture.blocks import encode
from app.capture.captured import ROWS, Captured, grouped
from app.capture.ring import Ring, folder_of
from app.engines.base import DEFAULT_SIGNATURE
from app.promotion.evidence import Evidence
from app.repository.rollouts.decisions import Decisions
from app.repository.scan import ModelFolder
from app.repository.served import ServedModel
from app.settings import Settings
from app.settings.model_config import ModelConfig
from app.settings.promotion_config import PromotionConfig
from tests.support.engines import Computes
from tests.support.jobs import Notes, executor
from tests.support.promotion import signature

IDLE_WITHIN_S, BATCH_S = 0.2, 0.01


class Looked(Unbatched):
    """A runner that says when it is idle as the test does."""

    def __init__(self, engine, is_idle):
        super().__init__(executor(engine, 4), 64)
        self._is_idle = is_idle

    def is_idle(self):
        return self._is_idle()


class Proof:
    """Two versions on a clock of their own; `ran_at` is when batches ran."""

    def __init__(self, folder, is_idle=lambda proof, version: True):
        self.now = 0.0
        self.ran_at = []
        self.folder = folder
        self._is_idle = is_idle
        clock = lambda: self.now, self.sleep
        self._decisions = Decisions(Evidence(None), lambda *_: None, *clock)

    def sleep(self, seconds):
        self.now += seconds

    def version(self, number, shift=0):
        """Return a version that answers with its row, shifted by some places."""

        def compute(batch):
            self.ran_at.append(self.now)
            self.now += BATCH_S
            return {"scores": np.roll(batch["x"], shift, axis=1)}

        engine = Computes(compute, signature())
        settings = Settings(max_batch_size=4, capture_dir=self.folder)
        return ServedModel(
            *("m", number, "", engine.signatures),
            ModelConfig(settings),
            Looked(engine, lambda: self._is_idle(self, number)),
            Notes(),
        )

    def refusal(self, shift=0):
        """Return why version 2 is refused."""
        paths = {number: self.folder / "m" / str(number) for number in (1, 2)}
        serving, candidate = self.version(1), self.version(2, shift)
        config = PromotionConfig(replay=8)
        folder = ModelFolder("m", paths, serving.config)
        return self._decisions.prove(folder, config, serving, candidate)


@pytest.mark.parametrize("busy", [1, 2])
def test_proof_runs_rows_only_while_both_versions_are_idle(tmp_path, busy):
    """Clients have jobs in one of them in the first half of each 0.1 s."""

    def is_idle(proof, version):
        return version != busy or proof.now % 0.1 >= 0.05

    proof = Proof(tmp_path, is_idle)
    assert proof.refusal() == ""
    assert len(proof.ran_at) > 10
    assert all(now % 0.1 >= 0.05 for now in proof.ran_at)


def test_proof_runs_rows_among_those_of_clients_where_it_is_never_idle(tmp_path):
    """Each batch waits for 0.2 s, and then for its place in the queue."""
    proof = Proof(tmp_path, lambda proof, version: False)
    assert proof.refusal() == ""
    waits = np.diff(proof.ran_at) - BATCH_S
    assert waits.min() == pytest.approx(IDLE_WITHIN_S, abs=0.003)
    assert waits.max() == pytest.approx(IDLE_WITHIN_S, abs=0.003)


@pytest.mark.parametrize("shift", [0, 1])
def test_proof_logs_its_table_and_names_the_requests_that_differ(
    tmp_path, caplog, shift
):
    """An operator finds the rows in what was captured, whether or not they count."""
    caplog.set_level("INFO")
    rows = np.float32([np.arange(10) + number for number in range(8)])
    requests = [
        Captured(
            *(DEFAULT_SIGNATURE, {"x": row[None]}, {"scores": row[None]}, ROWS),
            *(1, 1e9, f"id-{number}", 1, 1, 0.1),
        )
        for number, row in enumerate(rows)
    ]
    Ring(folder_of(tmp_path, "m")).add(encode(grouped(requests)), 1_000_000)
    reason = Proof(tmp_path).refusal(shift)
    table = [each for each in caplog.messages if "the same top class in" in each]
    assert len(table) == 1
    different = [each for each in caplog.messages if " (request id-" in each]
    if shift:
        assert reason.endswith("most different: row 0, scores by 9 (request id-7)")
        assert len(different) == 5
    else:
        assert (reason, different) == ("", [])
