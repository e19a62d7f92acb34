"""What goes wrong, when the scenario says so. Each kind begins at ``at`` and ends ``seconds`` later (0: never).

exporter-frozen, exporter-silent   of ``node`` ("" all)
node-lost                          object and pods gone at once; back, as a new node, after ``seconds`` if given
node-replaced                      the same, back after ``delay_seconds`` under the same name with another uid
node-not-ready, node-cordoned      for ``seconds``
watch-gap                          no facts for ``seconds``, then everything anew
facts-duplicated, facts-late       a ``share`` of facts twice, or ``delay_seconds`` late
facts-reordered                    the facts of a step in any order
outsider-taint                     someone puts ``taint`` ("key=value") back on ``node`` whenever it is missing
kafka-away                         the world says that Kafka cannot be reached
finalizer-hangs, -released         for pods on ``node`` or of the gang or job ``target``
budget-closed                      budgets ``target`` ("namespace/name") allow nothing
api                                answers ``target`` (an AnswerKind) to ``calls``, ``count`` times (0: until the end);
                                   ``lands``: the call took effect all the same; ``delay_seconds``: asked to retry after
control                            fields of the control object set to ``changes``
squatter                           a pod that opted into nothing takes one GPU of ``node``

Faults reach the cluster through the same doors as everything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rebalancer.core.facts import Control, Node, Pod, PodPhase, Taint
from rebalancer.core.protocol.calls import AnswerKind
from rebalancer.core.units import ON_LOAN, Mode, OwnerClass
from rebalancer.simulate.agenda import Agenda
from rebalancer.simulate.apiserver import ApiServer, Trouble
from rebalancer.simulate.budgets import Budgets
from rebalancer.simulate.feed import Feed
from rebalancer.simulate.fleet import make_node
from rebalancer.simulate.kubelet import Kubelet, Life
from rebalancer.simulate.loading import seconds_of
from rebalancer.simulate.scenario import FaultSpec, Scenario
from rebalancer.simulate.store import Store
from rebalancer.simulate.telemetry import Telemetry


@dataclass(slots=True)
class Parts:
    """What faults can get at."""

    store: Store
    agenda: Agenda
    kubelet: Kubelet
    budgets: Budgets
    api: ApiServer
    feed: Feed
    telemetry: Telemetry


class Faults:
    """The scenario's timeline of trouble."""

    def __init__(self, scenario: Scenario, parts: Parts) -> None:
        self._scenario, self._parts = scenario, parts
        self._away = 0
        self._outsiders: list[tuple[str, Taint]] = []
        self._begin: Mapping[str, Callable[[FaultSpec, float], Callable[[float], None] | None]] = {
            "exporter-frozen": lambda fault, _t: self._exporters(fault, parts.telemetry.frozen),
            "exporter-silent": lambda fault, _t: self._exporters(fault, parts.telemetry.silent),
            "node-lost": self._lost,
            "node-replaced": self._replaced,
            "node-not-ready": self._not_ready,
            "node-cordoned": self._cordoned,
            "watch-gap": lambda _fault, _t: self._flag("gap"),
            "facts-reordered": lambda _fault, _t: self._flag("reordered"),
            "facts-duplicated": self._duplicated,
            "facts-late": self._late,
            "outsider-taint": self._outsider,
            "kafka-away": self._kafka,
            "finalizer-hangs": self._hang,
            "finalizer-released": self._release,
            "budget-closed": self._close_budget,
            "api": self._api,
            "control": self._control,
            "squatter": self._squat,
        }
        parts.store.node_watchers.append(self._node_changed)
        for fault in scenario.faults:
            self._arrange(fault)

    @property
    def kafka_away(self) -> bool:
        """Whether a declared outage of Kafka is on."""
        return self._away > 0

    def _arrange(self, fault: FaultSpec) -> None:
        self._parts.agenda.at(seconds_of(fault.at, self._scenario), lambda t: self.begin(fault, t))

    def begin(self, fault: FaultSpec, t: float) -> None:
        """Let a fault begin now."""
        undo = self._begin[fault.kind](fault, t)
        if undo is not None and fault.seconds > 0:
            self._parts.agenda.at(t + fault.seconds, undo)

    def _nodes(self, fault: FaultSpec) -> list[Node]:
        nodes = self._parts.store.nodes
        if fault.node == "@lent":
            lent = [node for node in nodes.values() if any(taint.key == ON_LOAN for taint in node.taints)]
            return sorted(lent, key=lambda node: node.name)[:1]
        if not fault.node:
            return list(nodes.values())
        return [nodes[fault.node]] if fault.node in nodes else []

    # --- telemetry and facts

    def _exporters(self, fault: FaultSpec, names: set[str]) -> Callable[[float], None]:
        hit = [node.name for node in self._nodes(fault)]
        names.update(hit)
        return lambda _t: names.difference_update(hit)

    def _flag(self, name: str) -> Callable[[float], None]:
        setattr(self._parts.feed, name, True)
        return lambda _t: setattr(self._parts.feed, name, False)

    def _duplicated(self, fault: FaultSpec, _t: float) -> Callable[[float], None]:
        self._parts.feed.duplicated = fault.share
        return lambda _t: setattr(self._parts.feed, "duplicated", 0.0)

    def _late(self, fault: FaultSpec, _t: float) -> Callable[[float], None]:
        self._parts.feed.late, self._parts.feed.late_seconds = fault.share, fault.delay_seconds
        return lambda _t: setattr(self._parts.feed, "late", 0.0)

    def _kafka(self, _fault: FaultSpec, _t: float) -> Callable[[float], None]:
        self._away += 1

        def back(_t: float) -> None:
            self._away -= 1

        return back

    # --- nodes

    def _lost(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        hit = [node.name for node in self._nodes(fault)]
        pools = {name: self._parts.store.nodes[name].pool for name in hit}
        for name in hit:
            self._parts.kubelet.lose(name, t)
            self._parts.store.remove_node(name, t)

        def back(at: float) -> None:
            for name in hit:
                self._add(name, pools[name], at)

        return back

    def _replaced(self, fault: FaultSpec, t: float) -> None:
        self._parts.agenda.at(t + fault.delay_seconds, self._lost(fault, t))

    def _add(self, name: str, pool: str, t: float) -> None:
        store = self._parts.store
        spec = next(item for item in self._scenario.pools if item.name == pool)
        store.put_node(make_node(spec, name, store.new_uid(f"node/{name}"), self._parts.agenda.clock(t)), t)

    def _change(self, names: list[str], t: float, **changes: Any) -> list[str]:
        there = [name for name in names if name in self._parts.store.nodes]
        for name in there:
            self._parts.store.change_node(name, t, **changes)
        return there

    def _not_ready(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        hit = self._change([node.name for node in self._nodes(fault)], t, ready=False)
        for name in hit:
            self._parts.kubelet.node_down(name, t)

        def up(at: float) -> None:
            for name in self._change(hit, at, ready=True):
                self._parts.kubelet.node_up(name, at)

        return up

    def _cordoned(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        hit = self._change([node.name for node in self._nodes(fault)], t, cordoned=True)

        def uncordon(at: float) -> None:
            self._change(hit, at, cordoned=False)

        return uncordon

    def _outsider(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        key, _, value = fault.taint.partition("=")
        claims = [(node.name, Taint(key, value)) for node in self._nodes(fault)]
        self._outsiders += claims
        for name, taint in claims:
            self._put_back(name, taint, t)

        def leave(_t: float) -> None:
            self._outsiders = [claim for claim in self._outsiders if claim not in claims]

        return leave

    def _node_changed(self, _old: Node | None, new: Node | None, t: float) -> None:
        for name, taint in self._outsiders:
            if new is not None and new.name == name and taint not in new.taints:
                self._meddle(name, taint, t)

    def _meddle(self, name: str, taint: Taint, t: float) -> None:
        self._parts.agenda.at(t + 1.0, lambda at: self._put_back(name, taint, at))

    def _put_back(self, name: str, taint: Taint, t: float) -> None:
        node = self._parts.store.nodes.get(name)
        if node is not None and (name, taint) in self._outsiders and taint not in node.taints:
            self._parts.store.change_node(name, t, taints=(*node.taints, taint))

    # --- pods, budgets, brakes, answers

    def _victims(self, fault: FaultSpec) -> list[Pod]:
        if fault.target:
            pods = self._parts.store.pods.values()
            return [pod for pod in pods if fault.target in (pod.gang, pod.workload, pod.name)]
        return [pod for node in self._nodes(fault) for pod in self._parts.store.pods_on(node.name)]

    def _hang(self, fault: FaultSpec, _t: float) -> Callable[[float], None]:
        hit = [pod.uid for pod in self._victims(fault)]
        for uid in hit:
            self._parts.kubelet.life(uid).hangs = True

        def let_go(at: float) -> None:
            for uid in hit:
                self._parts.kubelet.release(uid, at)

        return let_go

    def _release(self, fault: FaultSpec, t: float) -> None:
        for pod in self._victims(fault):
            self._parts.kubelet.release(pod.uid, t)

    def _close_budget(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        namespace, _, name = fault.target.partition("/")
        self._parts.budgets.close(namespace, name, t, closed=True)
        return lambda at: self._parts.budgets.close(namespace, name, at, closed=False)

    def _api(self, fault: FaultSpec, _t: float) -> Callable[[float], None]:
        retry = fault.delay_seconds or None
        trouble = Trouble(AnswerKind(fault.target), fault.calls, fault.count or -1, fault.lands, retry)
        self._parts.api.troubles.append(trouble)
        return lambda _t: self._parts.api.troubles.remove(trouble)

    def _control(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        before = self._parts.store.control
        self._parts.store.put_control(changed_control(before, fault.changes), t)
        return lambda at: self._parts.store.put_control(before, at)

    def _squat(self, fault: FaultSpec, t: float) -> Callable[[float], None]:
        hit = [self._squatter(node, t) for node in self._nodes(fault)]

        def leave(at: float) -> None:
            for uid in hit:
                self._parts.kubelet.delete(uid, at)

        return leave

    def _squatter(self, node: Node, t: float) -> str:
        store = self._parts.store
        uid = store.new_uid("pod/stray")
        pod = Pod(
            uid=uid, name=f"stray-{uid[:5]}", namespace="default", gpus=1, phase=PodPhase.PENDING,
            owner=OwnerClass.UNKNOWN, gang=uid, workload="default/stray", created_at=self._parts.agenda.clock(t),
        )  # fmt: skip
        self._parts.kubelet.create(pod, Life(5.0, 5.0), t)
        self._parts.kubelet.bind(uid, node.name, t)
        return uid


def changed_control(control: Control, changes: Mapping[str, Any]) -> Control:
    """The control object with some fields set from plain values; unknown fields raise TypeError."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
    if "modes" in values:
        values["modes"] = {pool: Mode(mode) for pool, mode in values["modes"].items()}
    return replace(control, **values)
