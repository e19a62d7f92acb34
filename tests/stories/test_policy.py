"""A policy that is not valid does not reach the decider: the old one stays, and an alert says so."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rebalancer.adapters.store import RawRecord, Store
from rebalancer.adapters.streams.connection import KafkaSettings
from rebalancer.adapters.streams.reader import read_to_end
from rebalancer.bootstrap import policywatch, service
from rebalancer.core.instructions import RaiseAlert
from rebalancer.core.reasons import Reason
from rebalancer.settings import HttpSettings, Role, Settings
from rebalancer.wire import v1

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
WITHIN = 30.0  # seconds
VALID = "pools: {infer-l20: {model: L20, owner: inference}}\n"
INVALID = VALID + "activities: {dwell: -5}\n"
CHANGED = VALID + "activities: {dwell: 25m}\n"


async def test_an_invalid_policy_is_refused_with_its_path_and_line_the_old_one_stays_and_an_alert_is_raised(
    fresh: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policywatch, "EVERY", 0.1)
    file = tmp_path / "policy.yaml"
    file.write_text(VALID)
    settings = Settings(
        cluster="sim", kafka=fresh, roles=frozenset({Role.DECIDE}), policy=file, http=HttpSettings(port=0),
        data_dir=tmp_path / "scratch",
    )  # fmt: skip
    async with AsyncExitStack() as stack:
        running = service.Service(settings, stack)
        (watching,) = [asyncio.ensure_future(work()) for work in await running.begin()]
        assert running._decide is not None
        await running._decide.ready()
        decider = running._decide.decider("sim")
        assert decider is not None
        before = decider.engine.state.policy

        file.write_text(INVALID)
        alert = await raised(fresh)
        assert alert.because.reason is Reason.INVALID_POLICY
        assert "activities.dwell" in str(alert.because.numbers["why"])
        assert ":2:" in str(alert.because.numbers["why"])
        assert decider.engine.state.policy == before

        file.write_text(CHANGED)
        async with asyncio.timeout(WITHIN):
            while decider.engine.state.policy == before:  # noqa: ASYNC110 - the engine has no event to wait for
                await asyncio.sleep(0.05)
        await quiet(fresh)

        file.unlink()
        assert "No such file" in str((await raised(fresh)).because.numbers["why"])
        file.write_text(CHANGED)
        await quiet(fresh)
        assert not watching.done()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def raised(kafka: KafkaSettings) -> RaiseAlert:
    """The first alert that stands on the topic."""
    async with asyncio.timeout(WITHIN):
        while not (found := await alerts(kafka)):  # noqa: ASYNC110 - a topic is read by asking
            await asyncio.sleep(0.2)
    return found[0]


async def quiet(kafka: KafkaSettings) -> None:
    """No alert stands any more."""
    async with asyncio.timeout(WITHIN):
        while await alerts(kafka):  # noqa: ASYNC110 - a topic is read by asking
            await asyncio.sleep(0.2)


async def alerts(kafka: KafkaSettings) -> list[RaiseAlert]:
    store = Store(cluster="sim")
    async for record in read_to_end(kafka, [v1.ALERT]):
        store.feed(RawRecord(*record))
    return list(store.alerts.values())
