"""The undisturbed night, lived once a test run and then only read."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from rebalancer.adapters.store import Store
from rebalancer.adapters.streams.connection import KafkaSettings
from tests.stories.stage import Stage
from tests.stories.telling import decisions, loans, memory, results
from tests.stories.world import State

WHOLE = {"gangs_split": 0, "loans_overdue": 0, "loans_open_at_end": 0, "trainers_left_at_due": 0}
"""What every night must end with."""


class Night(NamedTuple):
    """A night that is over: its folder, what the topics say, who was told to go, the world's figures."""

    folder: Path
    store: Store
    evicted: Counter[str]
    patched: Counter[State]
    summary: dict[str, object]


async def lived(kafka: KafkaSettings, folder: Path, scenario: str = "night") -> Night:
    """Live through a night with one worker and no disturbance."""
    async with Stage(kafka, folder, scenario) as stage:
        await stage.worker()
        await stage.live()
        return over(stage)


def over(stage: Stage) -> Night:
    """What is left of a stage's night."""
    return Night(stage.folder, stage.store, stage.world.evicted(), stage.world.patched(), stage.world.summary())


def differing(mine: Sequence[object], theirs: Sequence[object]) -> list[str]:
    """What only one of two nights has, so that a failure says what it is."""
    only_mine, only_theirs = [one for one in mine if one not in theirs], [one for one in theirs if one not in mine]
    order = [] if only_mine or only_theirs or list(mine) == list(theirs) else ["another order"]
    return [f"+ {one}" for one in only_mine] + [f"- {one}" for one in only_theirs] + order


def assert_equal(night: Night, undisturbed: Night) -> None:
    """Nothing was decided, done, forgotten or left otherwise than on the undisturbed night."""
    found = differing(decisions(night.store), decisions(undisturbed.store))
    assert not found, "\n".join(found)
    assert results(night.store) == results(undisturbed.store)
    assert loans(night.store) == loans(undisturbed.store)
    assert memory(night.store) == memory(undisturbed.store)
    assert_done_once(night, undisturbed)


def assert_done_once(night: Night, undisturbed: Night, epochs: int = 1) -> None:
    """Each pod was told to go once, each node changed hands as often as on the undisturbed night, all was in time.

    ``epochs``: how many held act's lease.
    """
    assert night.evicted == undisturbed.evicted
    assert set(night.evicted.values()) == {1}
    if epochs == 1:
        assert night.patched == undisturbed.patched
    else:  # a new holder of the lease may write its epoch into the mark of a node that is under way
        assert {(name, taints) for name, taints, _ in night.patched} == {one[:2] for one in undisturbed.patched}
        assert max(night.patched.values()) == max(undisturbed.patched.values()) == 1
    assert WHOLE.items() <= night.summary.items()
