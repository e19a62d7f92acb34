"""What happened, from the records alone: nodes, pods, loans, verdicts and evictions as they were at every moment.

Topics have no order among each other, so everything is put in order by the time at which it happened.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

from contract import Message

Value = TypeVar("Value")


class Course(Generic[Value]):
    """One thing over time, in milliseconds. Of one moment the last word counts."""

    def __init__(self) -> None:
        """Nothing is known of it."""
        self.times: list[int] = []
        self._values: list[Value | None] = []

    def set(self, at: int, value: Value | None) -> None:
        """From ``at`` on, and never before what was said last."""
        self.times.append(max(at, self.times[-1] if self.times else at))
        self._values.append(value)

    def at(self, moment: int) -> Value | None:
        """How it was then; None before it was known and after it was gone."""
        place = bisect_right(self.times, moment)
        return self._values[place - 1] if place else None

    def values(self) -> Iterable[Value]:
        """All that it ever was."""
        return (value for value in self._values if value is not None)


class Eviction(NamedTuple):
    """Work that one eviction undid, in GPU-milliseconds, and the members that went, as node name and GPUs."""

    pool: str
    gang: str
    at: int
    lost: int
    members: list[tuple[str, int]]


class History:
    """All objects by uid. ``loans`` are those of nodes that were really lent, as their last record has them."""

    def __init__(self, messages: Iterable[Message]) -> None:
        """Take everything in."""
        self.nodes: dict[str, Course[dict[str, Any]]] = {}
        self.pods: dict[str, Course[dict[str, Any]]] = {}
        self.activity: dict[str, Course[str]] = {}
        self.loans: dict[str, dict[str, Any]] = {}
        self.usage: list[Message] = []
        self._since: dict[str, set[str]] = {}
        self._plans: dict[str, dict[str, Any]] = {}
        self._outcomes: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._moves: dict[str, list[tuple[int, str]]] = {}
        for message in messages:
            self._take(message)

    def _take(self, message: Message) -> None:
        kind, data = message.kind, (message.value or {}).get("data", {})
        at = ms((message.value or {}).get("time") or message.headers["ce_time"])
        if kind in ("fact.node", "fact.pod"):
            self._fact(kind.removeprefix("fact."), message.key, at, data or None)
        elif kind == "snapshot.began":
            self._since[data["of"]] = set()
        elif kind == "snapshot.ended":
            self._listed(data["of"], at)
        elif kind == "state.node" and data:
            self.activity.setdefault(data["node"], Course()).set(at, data["activity"])
        elif kind == "state.loan" and data and data["mode"] == "act":
            self.loans[data["id"]] = data
        elif kind == "decision.plan":
            self._plans[data["id"]] = data
        elif kind == "decision.outcome":
            self._outcome(data)
        elif kind in ("usage.loan", "usage.pool"):
            self.usage.append(message)

    def _fact(self, of: str, uid: str, at: int, data: dict[str, Any] | None) -> None:
        courses = self.nodes if of == "node" else self.pods
        courses.setdefault(uid, Course()).set(at, data)
        self._since.get(of, set()).add(uid)

    def _listed(self, of: str, at: int) -> None:
        """A full list is over: what it did not name is gone."""
        courses, named = {"node": self.nodes, "pod": self.pods}.get(of, {}), self._since.pop(of, None)
        for uid, course in courses.items():
            if named is not None and uid not in named:
                course.set(at, None)

    def _outcome(self, data: dict[str, Any]) -> None:
        if data["result"] == "done":
            self._outcomes.setdefault((data["plan"], data["step"], data["target"]), data)
        word = MOVES.get((data["kind"], data["result"]))
        if word is not None:
            self._moves.setdefault(data["loan"], []).append((ms(data["at"]), word))

    def course_of(self, loan: Mapping[str, Any]) -> Course[str]:
        """Whether a loan's node was ``moving`` or ``lent``."""
        moments = [(ms(loan["opened_at"]), "moving"), *self._moves.get(loan["id"], ())]
        moments += [(ms(loan[name]), word) for name, word in PHASES if loan[name] is not None]
        course: Course[str] = Course()
        for at, word in sorted(moments, key=lambda one: one[0]):
            course.set(at, word or None)
        return course

    def evictions(self) -> list[Eviction]:
        """Evictions that cost work."""
        found = []
        for (plan, step, gang), data in self._outcomes.items():
            lost = round(float(data["numbers"].get("lost_gpu_seconds", 0)) * 1000)
            if data["kind"] == "evict" and data["numbers"].get("members") and lost > 0:
                members = self._plans[plan]["steps"][step]["members"]
                places = [(one["node"], one["gpus"]) for one in members]
                found.append(Eviction(data["pool"], gang, ms(data["at"]), lost, places))
        return found


PHASES = (("lent_at", "lent"), ("closing_at", "moving"), ("closed_at", ""))
MOVES = {("close", "done"): "moving", ("close", "cancelled"): "lent", ("restore", "cancelled"): "lent"}
"""What outcomes do to a loan: its record no longer says so once it was called off."""


def ms(moment: str) -> int:
    """Whole milliseconds since 1970."""
    told = datetime.fromisoformat(moment)
    return int(told.timestamp()) * 1000 + told.microsecond // 1000
