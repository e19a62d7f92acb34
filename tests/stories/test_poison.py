"""What cannot be read goes beside its topic with origin, stage and reason, and nothing else changes."""

from pathlib import Path

import pytest

from rebalancer.adapters.streams import decide
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.reader import read_to_end
from rebalancer.wire import v1
from rebalancer.wire.envelope import Record
from tests.stories.moments import moments
from tests.stories.night import Night, assert_equal, over
from tests.stories.stage import Stage

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
INPUTS = (*decide.INPUTS, v1.SAMPLE_DEVICE, v1.PLAN)
UNKNOWN = b'{"id": "1", "time": "2026-03-10T20:00:00Z", "cluster": "sim", "schema": "v1", "type": "io.example.unknown"}'
POISON = {
    b"half a JSON object": b'{"id": ',
    b"a list": b"[1, 2]",
    b"wrong shape": b'{"uid": 7}',
    b"nothing at all": b"",
    b"no text": b"\xff\xfe\x00",
    b"an unknown type": UNKNOWN,
}


async def test_poison_on_every_input_is_buried_with_its_origin_and_changes_no_decision(
    fresh: KafkaSettings, undisturbed: Night, tmp_path: Path
) -> None:
    async with Stage(fresh, tmp_path) as stage:
        await stage.worker()
        for step in (moments().lent - 2, moments().planned):
            await stage.live(step)
            await stage.driver.send(
                [Record(topic, key, value, [("mine", b"1")]) for topic in INPUTS for key, value in POISON.items()],
                stage.cluster,
            )
        await stage.live()
        assert_equal(over(stage), undisturbed)
        dead = [one async for one in read_to_end(fresh, [f"{topic}.dlq" for topic in INPUTS])]
    found: dict[tuple[str, bytes], int] = {}
    for one in dead:
        headers = dict(one.headers)
        place = one.topic.removesuffix(".dlq"), one.key
        found[place] = found.get(place, 0) + 1
        assert one.value == POISON[one.key]
        assert headers["mine"] == b"1"
        assert headers["dlq_topic"].decode() == place[0]
        assert headers["dlq_partition"].isdigit()
        assert headers["dlq_offset"].isdigit()
        assert headers["dlq_stage"]
        assert headers["dlq_error"]
    assert found == {(topic, key): 2 for topic in INPUTS for key in POISON}
