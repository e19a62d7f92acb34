"""Topics as they are at a broker, beside the list: what would change, and making it so.

Only creates topics and sets their settings. It never deletes, and never changes a partition count: records of a
key would change places, so that is refused and for people to solve. Settings that the list does not name stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import for_code

from rebalancer.adapters.streams.connection import KafkaSettings, asked_of
from rebalancer.wire.topics import Topic, topics

BROKER_DEFAULT = -1
"""Replication factor that leaves the choice to the broker's ``default.replication.factor``."""
_SET_ON_TOPIC = 1
"""``config_source`` of a setting made on the topic itself (KIP-226: DYNAMIC_TOPIC_CONFIG)."""
_LOOK_AGAIN = 0.05  # seconds


class Action(StrEnum):
    """What is to be done about a topic."""

    CREATE = "create"
    CHANGE = "change"
    NOTHING = "nothing"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Change:
    """One topic beside the list. ``settings`` maps a setting to (as it is, as it should be)."""

    topic: Topic
    action: Action
    settings: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    why: str = ""

    @property
    def sentence(self) -> str:
        """One line for people."""
        told = ", ".join(f"{name} {was or 'unset'} -> {to}" for name, (was, to) in sorted(self.settings.items()))
        return " ".join(part for part in (self.action, self.topic.name, told, self.why) if part)


class TopicsRefused(ValueError):  # noqa: N818 - says what happened
    """Nothing was changed, because a topic would need what is never done, or the broker said no."""


class _Found(NamedTuple):
    partitions: int
    settings: Mapping[str, str | None]
    own: Mapping[str, str | None]
    """Those of the settings that were made on the topic itself."""


async def plan(
    kafka: KafkaSettings, *, partitions: int | None = None, listed: Sequence[Topic] | None = None
) -> list[Change]:
    """What would change, in the order of the list; changes nothing.

    Args:
        kafka: how to reach the brokers.
        partitions: count for every topic instead of the list's.
        listed: topics instead of the list's.

    Raises:
        Unreachable: no broker answered in time.
        TopicsRefused: the broker refused to tell.
    """
    wanted = _wanted(partitions, listed)
    async with _admin(kafka) as admin:
        found = await _found(kafka, admin, wanted)
    return [_compare(topic, found.get(topic.name)) for topic in wanted]


async def apply(
    kafka: KafkaSettings,
    *,
    partitions: int | None = None,
    replication: int = BROKER_DEFAULT,
    listed: Sequence[Topic] | None = None,
) -> list[Change]:
    """Make it so, and return what was done; all or nothing as far as refusals are known beforehand.

    Raises:
        Unreachable: no broker answered in time.
        TopicsRefused: a partition count differs (then nothing was changed), or the broker refused.
    """
    wanted = _wanted(partitions, listed)
    async with _admin(kafka) as admin:
        found = await _found(kafka, admin, wanted)
        changes = [_compare(topic, found.get(topic.name)) for topic in wanted]
        refused = [change.sentence for change in changes if change.action is Action.REFUSED]
        if refused:
            raise TopicsRefused("; ".join(refused))
        await _create(kafka, admin, [each.topic for each in changes if each.action is Action.CREATE], replication)
        changed = [change for change in changes if change.action is Action.CHANGE]
        await _alter(kafka, admin, {each.topic: found[each.topic.name] for each in changed})
    return changes


def _wanted(partitions: int | None, listed: Sequence[Topic] | None) -> list[Topic]:
    chosen = topics() if listed is None else listed
    if partitions is None:
        return list(chosen)
    return [topic.model_copy(update={"partitions": partitions}) for topic in chosen]


def _compare(topic: Topic, found: _Found | None) -> Change:
    if found is None:
        return Change(topic, Action.CREATE, why=f"{topic.partitions} partitions, {topic.cleanup}")
    if found.partitions != topic.partitions:
        return Change(
            topic,
            Action.REFUSED,
            why=f"has {found.partitions} partitions and not {topic.partitions}: counts are never changed here",
        )
    differs = {
        name: (found.settings.get(name), value)
        for name, value in topic.config.items()
        if found.settings.get(name) != value
    }
    return Change(topic, Action.CHANGE if differs else Action.NOTHING, differs)


@asynccontextmanager
async def _admin(kafka: KafkaSettings) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(**kafka.client_arguments())
    try:
        await asked_of(kafka, admin.start())
        yield admin
    finally:
        await admin.close()


async def _found(kafka: KafkaSettings, admin: AIOKafkaAdminClient, wanted: Sequence[Topic]) -> dict[str, _Found]:
    # All topics and not only ours: asking for one by name may create it where the broker auto-creates.
    described = await asked_of(kafka, admin.describe_topics(None))
    there = {each["topic"]: len(each["partitions"]) for each in described if each["partitions"]}
    counts = {topic.name: there[topic.name] for topic in wanted if topic.name in there}
    if not counts:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in counts]
    answers = await asked_of(kafka, admin.describe_configs(asked))
    return {
        name: _Found(counts[name], {e[0]: e[1] for e in entries}, {e[0]: e[1] for e in entries if _is_own(e)})
        for answer in answers
        for code, why, _, name, entries in answer.resources
        if _accepted(name, code, why)
    }


def _is_own(entry: Sequence[Any]) -> bool:
    """Whether a setting was made on the topic: (name, value, read-only, source, ...)."""
    return bool(entry[3] == _SET_ON_TOPIC)


def _accepted(name: str, code: int, why: str | None) -> bool:
    """True; raises if the broker said no."""
    if code:
        error = for_code(code)
        raise TopicsRefused(f"{name}: {error.__name__}{f', {why}' if why else ''}")
    return True


async def _create(kafka: KafkaSettings, admin: AIOKafkaAdminClient, new: Sequence[Topic], replication: int) -> None:
    if not new:
        return
    asked = [_new(each, replication) for each in new]
    answer = await asked_of(kafka, admin.create_topics(asked, timeout_ms=int(kafka.timeout * 1000)))
    for name, code, *why in answer.topic_errors:
        _accepted(name, code, why[0] if why else None)
    await asked_of(kafka, _until_there(admin, {each.name for each in new}))


def _new(topic: Topic, replication: int) -> NewTopic:
    asked = NewTopic(topic.name, topic.partitions, 1, topic_configs=dict(topic.config))
    asked.replication_factor = replication  # its constructor refuses -1, which brokers since 2.4 take
    return asked


async def _until_there(admin: AIOKafkaAdminClient, names: set[str]) -> None:
    """Creation is acknowledged before every broker knows; whoever comes next should not see a gap."""
    while not names <= set(await admin.list_topics()):  # noqa: ASYNC110 - the broker tells only who asks
        await asyncio.sleep(_LOOK_AGAIN)


async def _alter(kafka: KafkaSettings, admin: AIOKafkaAdminClient, changed: Mapping[Topic, _Found]) -> None:
    if not changed:
        return
    # The request replaces all of a topic's own settings, so those that the list does not name go with it again.
    asked = [
        ConfigResource(ConfigResourceType.TOPIC, topic.name, configs={**found.own, **topic.config})
        for topic, found in changed.items()
    ]
    for answer in await asked_of(kafka, admin.alter_configs(asked)):
        for code, why, _, name in answer.resources:
            _accepted(name, code, why)
