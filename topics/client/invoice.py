"""The invoice, added up from history alone, and compared with the usage records.

What counts as what: GPUs of a node that is not ready or still starting are unhealthy, as are those that it lacks.
Otherwise held GPUs belong to their holder: on a node at home they are the owner's own; on a node on loan they are
lent, but for those of the owner's class. Of what nobody holds, on a node at home it is idle if pods may land there,
on a node on loan unused or, while it changes hands, in transit; where nobody may land it is unhealthy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from history import Course, Eviction, History, ms

HOUR = 3_600_000
POOL = ("capacity", "own", "lent", "transit", "idle", "unhealthy")
LOAN = ("allocated", "busy", "transit", "lost", "unused")
OURS = ("gpu-rebalancer.io/closing", "gpu-rebalancer.io/on-loan")


class Line(NamedTuple):
    """One line of the invoice; ``loan`` and ``gang`` are empty for a pool's hour."""

    pool: str
    loan: str
    gang: str
    hour: int


Sums = dict[tuple[Line, str], int]
"""GPU-milliseconds by line and field."""


def told(history: History) -> dict[Line, dict[str, Any]]:
    """The usage records in force: of one id the last, and none that another one corrects."""
    by_id = {message.value["data"]["id"]: message.value["data"] for message in history.usage if message.value}
    corrected = {data["corrects"] for data in by_id.values()}
    lines = {}
    for data in by_id.values():
        if data["id"] not in corrected:
            pool = data.get("lender") or data["pool"]
            hour = ms(data["since"]) // HOUR
            lines[Line(pool, data.get("loan", ""), data.get("gang", ""), hour)] = data
    return lines


class Place(NamedTuple):
    """A node with everything that its account depends on."""

    node: Course[dict[str, Any]]
    pods: list[Course[dict[str, Any]]]
    loans: list[tuple[dict[str, Any], Course[str]]]
    activity: Course[str]


def rebuilt(history: History, began: dict[str, int], end: int) -> Sums:
    """All lines from when each pool's account began up to ``end``, from facts, loans, verdicts and outcomes."""
    sums: Sums = defaultdict(int)
    for place in _places(history):
        _add_up(sums, place, began, end)
    for one in history.evictions():
        _lost(sums, one, history.loans.values())
    return sums


def _places(history: History) -> Iterator[Place]:
    guests: dict[str, list[Course[dict[str, Any]]]] = defaultdict(list)
    for course in history.pods.values():
        for name in {pod["node"] for pod in course.values()} - {""}:
            guests[name].append(course)
    for uid, node in history.nodes.items():
        pods = [course for name in {one["name"] for one in node.values()} for course in guests[name]]
        loans = [(loan, history.course_of(loan)) for loan in history.loans.values() if loan["node"] == uid]
        yield Place(node, pods, loans, history.activity.get(uid, Course()))


def _add_up(sums: Sums, place: Place, began: dict[str, int], end: int) -> None:
    courses = [place.node, *place.pods, *(course for _, course in place.loans), place.activity]
    moments = sorted({at for course in courses for at in course.times} | set(began.values()))
    for since, until in zip(moments, [*moments[1:], end], strict=True):
        fact = place.node.at(since)
        if fact is None or since < began.get(fact["pool"], end) or until <= since:
            continue
        for loan, gang, field, gpus in _uses(place, fact, since):
            for hour in range(since // HOUR, (until - 1) // HOUR + 1):
                span = min(until, (hour + 1) * HOUR) - max(since, hour * HOUR)
                sums[Line(fact["pool"], loan, gang, hour), field] += gpus * span


def _uses(place: Place, node: dict[str, Any], at: int) -> Iterator[tuple[str, str, str, int]]:
    """What the GPUs of a node count as: loan, gang, field, GPUs."""
    whole = max(node["capacity"], node["gpus"])
    yield "", "", "capacity", whole
    if not node["ready"] or node["starting"]:
        yield "", "", "unhealthy", whole
        return
    yield "", "", "unhealthy", whole - node["gpus"]
    found = [pod for course in place.pods if (pod := course.at(at)) and pod["node"] == node["name"] and _holds(pod)]
    out = [(loan, word) for loan, course in place.loans if (word := course.at(at))]
    loan, word = max(out, key=lambda one: _opened(one[0]), default=({}, ""))
    own = sum(pod["gpus"] for pod in found if not loan or pod["owner"] == node["owner"])
    left = node["gpus"] - min(node["gpus"], own)
    yield "", "", "own", node["gpus"] - left
    for pod in sorted(found, key=lambda pod: (pod["gang"], pod["uid"])):
        if loan and pod["owner"] != node["owner"]:
            taken = min(left, pod["gpus"])
            left -= taken
            yield "", "", "lent", taken
            yield loan["id"], pod["gang"], "allocated", taken
            yield loan["id"], pod["gang"], "busy", taken if place.activity.at(at) == "busy" else 0
    free = _free(node, loan, word)
    yield "", "", "lent" if free == "unused" else free, left
    if loan and free != "unhealthy":
        yield loan["id"], loan["gang"], free, left


def _holds(pod: dict[str, Any]) -> bool:
    return bool(pod["gpus"]) and pod["phase"] not in ("Succeeded", "Failed")


def _free(node: dict[str, Any], loan: dict[str, Any], word: str) -> str:
    """What GPUs that nobody holds count as."""
    mark = node["loan"] if node["loan"] and node["loan"]["node_uid"] == node["uid"] else None
    stray = mark is None and (node["loan"] or any(taint["key"] in OURS for taint in node["taints"]))
    if node["cordoned"] or node["quarantine"] or node["gpus"] <= 0 or (stray and not loan):
        return "unhealthy"
    if not loan:
        return "idle"
    return "transit" if word == "moving" else "unused"


def _lost(sums: Sums, one: Eviction, loans: Iterable[dict[str, Any]]) -> None:
    """An eviction's lost work over the last loans of its members' nodes, by their GPUs, to the last millisecond.

    A loan that was over an hour before the eviction has no part in it.
    """
    weights: dict[str, int] = defaultdict(int)
    begun = [loan for loan in loans if loan["lender"] == one.pool and ms(loan["opened_at"]) <= one.at]
    known = [loan for loan in begun if loan["closed_at"] is None or ms(loan["closed_at"]) >= one.at - HOUR]
    for name, gpus in one.members:
        last = max((loan for loan in known if loan["node_name"] == name), key=_opened, default=None)
        if last is not None:
            weights[last["id"]] += gpus
    left, weight = one.lost, sum(weights.values())
    for loan_id in sorted(weights):
        share = left * weights[loan_id] // weight
        sums[Line(one.pool, loan_id, one.gang, one.at // HOUR), "lost"] += share
        left, weight = left - share, weight - weights[loan_id]


def _opened(loan: dict[str, Any]) -> int:
    return ms(loan["opened_at"])


def differences(history: History, within: float = 1.0) -> list[str]:
    """Where the rebuilt invoice and the usage records differ by more than ``within`` GPU-seconds."""
    lines = told(history)
    pools = {line: data for line, data in lines.items() if not line.loan}
    began = {pool: min(ms(data["since"]) for line, data in pools.items() if line.pool == pool) for pool, *_ in pools}
    over = {pool: max(ms(data["until"]) for line, data in pools.items() if line.pool == pool) for pool in began}
    end = max([ms(data["until"]) for data in lines.values()], default=0)
    sums = rebuilt(history, began, end)
    due = {line for (line, _), amount in sums.items() if amount and line.hour * HOUR < over.get(line.pool, 0)}
    found = [f"{line}: never told" for line in sorted(due - set(lines))]
    for line, data in lines.items():
        for field in LOAN if line.loan else POOL:
            ours, theirs = sums[line, field] / 1000, data[f"{field}_gpu_seconds"]
            if abs(ours - theirs) > within:
                found.append(f"{line} {field}: {theirs} told, {ours} rebuilt")
        if not line.loan and round(sum(data[f"{field}_gpu_seconds"] for field in POOL[1:]) * 1000) != round(
            data["capacity_gpu_seconds"] * 1000
        ):
            found.append(f"{line}: does not add up to its capacity")
    return found
