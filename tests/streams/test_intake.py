"""What sources' records lead to, one at a time: lists told or withheld, offsets that may be committed, faults."""

import json
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.adapters.streams import intake as room
from rebalancer.adapters.streams.intake import Intake
from rebalancer.adapters.streams.publish import NotPublished, Publisher
from rebalancer.adapters.streams.source_settings import SourceSettings
from rebalancer.adapters.streams.whereabouts import Whereabouts
from rebalancer.adapters.translate import decode
from rebalancer.core.stimuli import SnapshotEnded
from tests.decode import samples_here
from tests.streams.fakes import FakePublisher
from tests.streams.sourced import CLUSTER, GPU_NODE, NOW, POD_FACTS

PULL_END = {"type": "PullEnd", "object": {"kind": "pods"}}
POD = samples_here.parsed("kafka/raw_watch_event.json")["value"]
ERROR = samples_here.parsed("k8s/watch_error_410.json")


class Bench:
    """Sources `a` and `b` of objects and `m` of metrics, a clock that stands still, and a publisher that remembers."""

    def __init__(self) -> None:
        formats = {"a": "kubernetes-json", "b": "kubernetes-json", "m": "vector-json"}
        sources = {name: SourceSettings(topic=name, format=one, cluster=CLUSTER) for name, one in formats.items()}
        self.publisher, self.metrics, self.where = FakePublisher(), Metrics(), Whereabouts()
        self.tick, self.offsets = 0.0, dict.fromkeys(formats, 0)
        publisher = cast(Publisher, self.publisher)  # it has all that is used of one
        known = {CLUSTER: self.where}
        self.intake = Intake(sources, publisher, self.metrics, known, Reading(), lambda: NOW, lambda: self.tick)

    async def take(self, topic: str, *bodies: Any, timestamp: int = -1) -> None:
        for body in bodies:
            record = SimpleNamespace(
                topic=topic, partition=0, offset=self.offsets[topic], key=None, headers=(), timestamp=timestamp,
                value=body if isinstance(body, bytes) else json.dumps(body).encode(),
            )  # fmt: skip
            self.offsets[topic] += 1
            await self.intake.take(record, topic, alone=True)

    def ends(self) -> list[int]:
        told = [decode(one.topic, one.key, one.value, one.headers) for one in self.publisher.on(POD_FACTS)]
        return [one.count for one in told if isinstance(one, SnapshotEnded)]

    def lists(self, result: str) -> float | None:
        return self.metrics.registry.get_sample_value("gpu_rebalancer_source_lists_total", {"result": result})


def metric(second: int, gpu: str = "G") -> dict[str, Any]:
    tags = {"UUID": gpu, "Hostname": GPU_NODE.name}
    at = f"2026-03-03T06:00:{second:02d}Z"
    return {"name": "DCGM_FI_DEV_GPU_UTIL", "timestamp": at, "tags": tags, "kind": "absolute", "gauge": {"value": 5}}


async def test_a_list_of_one_source_is_told_and_of_two_sources_of_one_kind_is_not() -> None:
    bench = Bench()
    await bench.take("a", POD, PULL_END)
    assert bench.ends() == [1]
    await bench.take("b", POD)
    await bench.take("a", POD, PULL_END)
    assert (bench.ends(), bench.lists("shared")) == ([1], 1)


async def test_a_list_that_a_break_fell_into_is_not_told() -> None:
    bench = Bench()
    await bench.take("a", POD, ERROR, PULL_END)
    assert (bench.ends(), bench.lists("not-whole")) == ([], 1)
    await bench.take("a", POD, PULL_END)
    assert bench.ends() == [1]


async def test_offsets_wait_for_rows_that_are_held() -> None:
    bench = Bench()
    bench.where.saw(GPU_NODE)
    await bench.take("m", metric(0), metric(0, "H"))
    await bench.intake.hand_on()
    assert bench.intake.committable() == {"m": 0}
    await bench.take("m", metric(15))
    await bench.intake.hand_on()
    assert bench.intake.committable() == {"m": 2}
    assert len(bench.publisher.on("gpu.sample.device.v1")) == 1


async def test_what_the_broker_does_not_take_is_not_passed_over() -> None:
    bench = Bench()
    bench.publisher.away = True
    await bench.take("a", POD)
    with pytest.raises(NotPublished):
        await bench.intake.hand_on()
    with pytest.raises(NotPublished):
        await bench.take("a", b"{no json")
    assert bench.intake.committable() == {"a": 1}


async def test_a_fault_of_ours_costs_one_record_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    with monkeypatch.context() as broken:
        broken.setattr(room, "decode_foreign", lambda *_: 1 / 0)
        await bench.take("a", POD)
    await bench.take("a", POD)
    (letter,) = bench.publisher.on(f"{POD_FACTS}.dlq")
    assert dict(letter.headers)["dlq_stage"] == b"handle"
    assert len(bench.publisher.on(POD_FACTS)) == 1


@pytest.mark.parametrize(
    ("timestamp", "second"),
    [
        pytest.param(1772517610000, 10, id="the record's time"),
        pytest.param(-1, 20, id="no time"),
        pytest.param(4102444800000, 20, id="a time to come"),
        pytest.param(2**62, 20, id="no time that there is"),
    ],
)
async def test_an_object_without_a_time_is_as_old_as_its_record(timestamp: int, second: int) -> None:
    bench = Bench()
    await bench.take("a", POD["object"], timestamp=timestamp)
    (record,) = bench.publisher.on(POD_FACTS)
    assert datetime.fromisoformat(dict(record.headers)["ce_time"].decode()) == NOW.replace(second=second)
