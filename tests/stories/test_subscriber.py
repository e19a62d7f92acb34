"""A stranger who has only the `topics` folder follows a night, and comes to the same invoice as we do."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from rebalancer.adapters.invoice import charges
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.tapfolder import read_folder
from rebalancer.bootstrap import replay
from rebalancer.core.charges import Charge, LoanUsage, PoolUsage
from rebalancer.wire import v1
from tests.stories.moments import moments
from tests.stories.night import Night, assert_equal, over
from tests.stories.stage import Stage
from tests.usage.client import FOLDER, imported

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
KINDS = {
    "fact.node", "fact.pod", "state.node", "state.pool", "state.loan", "state.workload", "forecast.pool",
    "decision.plan", "decision.outcome", "usage.loan", "usage.pool",
}  # fmt: skip


async def subscriber(*options: object) -> dict[str, Any]:
    """What the example client says, as a process of its own that has nothing of ours on its path."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", str(FOLDER / "subscribe.py"), *map(str, options),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=FOLDER, env={"PYTHONPATH": str(FOLDER)},
    )  # fmt: skip
    said, complaints = await child.communicate()
    assert child.returncode in {0, 1}, complaints.decode()
    found: dict[str, Any] = json.loads(said)
    return {**found, "code": child.returncode}


def invoice(folder: Path) -> list[Charge]:
    return charges(read_folder(folder, (v1.USAGE_LOAN,)))


def test_the_example_client_imports_nothing_of_ours() -> None:
    assert imported() & {"rebalancer", "tests"} == set()
    assert "jsonschema" in imported()


async def test_a_stranger_validates_the_night_and_rebuilds_its_invoice(undisturbed: Night) -> None:
    found = await subscriber("--from", undisturbed.folder)
    assert (found["faults"], found["differences"], found["code"]) == ([], [], 0)
    assert set(found["records"]) >= KINDS
    ours = invoice(undisturbed.folder)
    assert len(found["lines"]) == len(ours)
    assert any(isinstance(one, PoolUsage) and one.lent_gpu_seconds for one in ours)
    assert any(isinstance(one, LoanUsage) and one.lost_gpu_seconds and one.busy_gpu_seconds for one in ours)


async def test_a_stranger_notices_a_record_that_says_something_else(undisturbed: Night, tmp_path: Path) -> None:
    for path in undisturbed.folder.glob("gpu.*.jsonl"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    usage = tmp_path / f"{v1.USAGE_LOAN}.jsonl"
    rows = [json.loads(line) for line in usage.read_text().splitlines()]
    *_, other, last = (row["value"]["data"] for row in rows if row["value"]["type"].endswith("usage.loan.v1"))
    other["allocated_gpu_seconds"] += 2.0
    last["loan"] = 7
    usage.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = await subscriber("--from", tmp_path)
    assert found["code"] == 1
    assert any("data.loan" in fault for fault in found["faults"])
    assert any(other["loan"] in one and "allocated" in one for one in found["differences"])


async def test_a_night_with_a_dead_decider_costs_the_same_to_the_millisecond(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        worker = await stage.worker()
        for step in (moments().half, moments().half + 7):
            await stage.live(step)
            await worker.kill()
            living = asyncio.create_task(stage.live(step + 1))
            await stage.told(step + 1)
            worker = await stage.worker()
            await living
        await stage.live()
        found = await subscriber("--kafka", fresh.bootstrap, "--cluster", stage.cluster)
        night = over(stage)
    assert_equal(night, undisturbed)
    assert invoice(night.folder) == invoice(undisturbed.folder)
    assert (found["faults"], found["differences"], found["code"]) == ([], [], 0)
    assert replay(night.folder).differences == ()
