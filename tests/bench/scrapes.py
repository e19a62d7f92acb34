"""How many native records of 8 GPUs one telemetry worker takes in a second: ``node_scrapes_per_s``.

Measured is what a worker does with a record apart from Kafka: decode it, let the node's judge observe it, ask for the
verdict, and encode the verdict when it is worth telling. Nodes report once a scrape (15 s) in turn; utilisation
changes all the time and crosses the thresholds now and then. Records are made before the clock starts. Told is the
median over rounds, on one core: by the clock, and by the processor's time, which other load does not change.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta
from typing import Any

from rebalancer.adapters.translate import decode, encode_sample, encode_verdict
from rebalancer.core.activity import NodeJudge
from rebalancer.core.policy import Activities
from rebalancer.core.telemetry import DeviceReading, NodeSample, Verdict, worth_telling
from tests.core.build import START

SCRAPE = timedelta(seconds=15)


def sample(node: int, scrape: int) -> NodeSample:
    """What a node of 8 GPUs reports: idle for some scrapes, busy for more, every value moving."""
    at = START + scrape * SCRAPE
    level = 0.0 if (scrape + node) % 40 < 8 else 0.5 + 0.01 * ((scrape * 7 + node) % 40)
    devices = tuple(
        DeviceReading(
            uuid=f"GPU-{node:04}-{card}",
            engine_active=level,
            gpu_util=100.0 * level,
            power=70.0 + 300.0 * level + scrape % 3,
            energy=1e9 + scrape * 1e6 * (card + 1),
            temperature=35.0 + 30.0 * level,
            memory_used=20_000.0 + scrape,
            xid=0,
        )
        for card in range(8)
    )
    return NodeSample(f"node-{node:04}", f"a100-{node:04}", at, 8, devices)


def run(*, nodes: int = 40, scrapes: int = 60, rounds: int = 3) -> dict[str, Any]:
    """The figures: records a second, and the share of records whose verdict was told."""
    records = [
        (encode_sample(sample(node, scrape), "bench"), START + scrape * SCRAPE)
        for scrape in range(scrapes)
        for node in range(nodes)
    ]
    rates, told = [], 0
    for _ in range(rounds):
        judges = [NodeJudge(Activities(), believe_idle_without_witness=False) for _ in range(nodes)]
        begun, busy = time.perf_counter(), time.process_time()
        told = _work(records, {f"node-{index:04}": judge for index, judge in enumerate(judges)})
        rates.append((len(records) / (time.perf_counter() - begun), len(records) / (time.process_time() - busy)))
    rate = round(statistics.median(wall for wall, _ in rates))
    per_cpu = round(statistics.median(cpu for _, cpu in rates))
    told_all = {"records": len(records), "verdicts_told": told, "per_cpu_second": per_cpu}
    return {"node_scrapes_per_s": rate, "scrapes": told_all}


def _work(records: list[tuple[Any, Any]], judges: dict[str, NodeJudge]) -> int:
    said: dict[str, Verdict] = {}
    told = 0
    for record, now in records:
        found = decode(record.topic, record.key, record.value, record.headers)
        if not isinstance(found, NodeSample):
            raise TypeError(f"{found!r} is no sample")
        judge = judges[found.node]
        judge.observe(found, now)
        verdict = judge.verdict(now, 0)
        if worth_telling(said.get(found.node), verdict):
            said[found.node] = verdict
            encode_verdict(verdict, "bench")
            told += 1
    return told
