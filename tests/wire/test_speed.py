"""How fast facts are read and written: 5,000 a second and core are wanted, figures come with `--benchmark-enable`."""

from typing import Any

from rebalancer.adapters import translate as wire
from tests.wire import cases


def test_writing_a_fact(benchmark: Any) -> None:
    record = benchmark(wire.encode_fact, cases.POD, cases.CLUSTER, cases.AT)
    assert record == cases.RECORDS["fact.pod"]


def test_reading_a_fact(benchmark: Any) -> None:
    assert benchmark(wire.decode, *cases.RECORDS["fact.pod"]) == cases.SAID["fact.pod"]


def test_writing_the_journal(benchmark: Any) -> None:
    record = benchmark(wire.encode_journal, cases.STIMULUS, cases.AT, cases.CLUSTER)
    assert record == cases.RECORDS["journal"]


def test_reading_the_journal(benchmark: Any) -> None:
    assert benchmark(wire.decode, *cases.RECORDS["journal"]) == cases.SAID["journal"]
