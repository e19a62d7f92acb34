"""A plan that takes nodes back: close them all, evict whole gangs, hand each node back when it is empty.

Gangs are read while nodes are being closed; nobody is checked, told or evicted before all are.

Nodes do not wait for each other once they are closed. A node whose gang is left alone is opened to its borrowers
again. How a node changes and how a gang goes is for ``homeward`` and ``gang``; only their order is here.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.plan import CloseNode, EvictGang, Plan, RestoreNode, Result
from rebalancer.core.protocol.gang import Gang
from rebalancer.core.protocol.homeward import Homeward
from rebalancer.core.protocol.site import Question, Site
from rebalancer.core.protocol.tables import Evicting, Returning
from rebalancer.core.protocol.telling import Telling
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import NodeUid


class TakeBack:
    """The close, evict and restore steps of one plan."""

    def __init__(self, site: Site, plan: Plan, telling: Telling) -> None:
        self.plan, self.telling = plan, telling
        self._site = site
        self._closes: dict[NodeUid, int] = {}
        self._restores: dict[NodeUid, int] = {}
        self._homes: dict[NodeUid, Homeward] = {}
        self._lent: dict[NodeUid, bool] = {}
        self._gangs: list[Gang] = []
        self._left: list[tuple[EvictGang, Because]] = []
        self._unclosed: dict[NodeUid, Because] = {}
        self._stopped: tuple[Because, Result] | None = None
        for index, step in enumerate(plan.steps):
            if isinstance(step, EvictGang):
                self._add_gang(index, step)
            elif isinstance(step, CloseNode | RestoreNode):
                (self._closes if isinstance(step, CloseNode) else self._restores)[step.node] = index
                self._lent[step.node] = bool(step.loan)
        for node in self._lent:
            self._add_node(node)

    def _add_gang(self, index: int, step: EvictGang) -> None:
        end = self.telling.end(index)
        if end is None:
            self._gangs.append(Gang(self._site, self.plan, index, step, self.telling))
        elif end.result is not Result.DONE:
            self._left.append((step, end.because))

    def _add_node(self, node: NodeUid) -> None:
        close, restore = self._closes.get(node), self._restores.get(node)
        ends = [self.telling.end(index) for index in (close, restore) if index is not None]
        closed = ends[0] if close is not None else None
        if closed is not None and closed.result is not Result.DONE:
            self._unclosed[node] = closed.because
        if all(ends) or node in self._unclosed:
            return
        step = self.plan.steps[close if close is not None else self._restores[node]]
        if isinstance(step, CloseNode | RestoreNode):
            begun_at = closed.at if closed is not None else None
            name = (node, step.node_name)
            repair = close is None and not step.loan
            taint = step.owner_taint if repair and isinstance(step, RestoreNode) else None
            self._homes[node] = Homeward(
                self._site, name, step.loan, self.plan.id, begun_at=begun_at, repair=repair, owner_taint=taint
            )

    @property
    def over(self) -> bool:
        """Whether every step has its final outcome and nothing is left to undo."""
        return self.telling.complete and all(home.over or not self._leaving(home) for home in self._homes.values())

    @property
    def _result(self) -> Result | None:
        return self._stopped[1] if self._stopped is not None else None

    def _closes_done(self, node: NodeUid) -> bool:
        end = self.telling.end(self._closes[node]) if node in self._closes else None
        return end is None or end.result is Result.DONE

    def _leaving(self, home: Homeward) -> bool:
        return home.phase is Returning.REOPENING

    @property
    def committed(self) -> bool:
        """Whether a real eviction may have been accepted."""
        evicted = any(gang.committed or gang.phase is Evicting.GONE for gang in self._gangs)
        ends = [self.telling.end(index) for index, step in enumerate(self.plan.steps) if step.kind == "evict"]
        evicted = evicted or any(end is not None and end.result is Result.DONE for end in ends)
        return evicted or any(home.phase is Returning.RESTORING for home in self._homes.values())

    def nodes(self) -> frozenset[NodeUid]:
        """Uids of the nodes it works on."""
        return frozenset(self._lent)

    def stop(self, because: Because, result: Result, now: datetime) -> bool:
        """Call it off and open the nodes again; False once anything may have been evicted."""
        if self.committed or self._stopped is not None:
            return False
        self._stopped = (because, result)
        for gang in self._gangs:
            if not gang.over:
                gang.stop(because, result)
        for home in self._homes.values():
            home.abandon(because)
        self.settle(now)
        return True

    def due(self, now: datetime) -> datetime | None:
        """When something is to be done."""
        times = [home.due(now) for home in self._homes.values() if not home.over]
        times += [gang.due(now) for gang in self._gangs if not gang.over]
        return min((time for time in times if time is not None), default=None)

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        found: list[Question] = []
        for node, home in self._homes.items():
            asked = home.questions(now)
            if home.patched and node in self._closes:
                self.telling.start(self._closes[node], now)
            found += asked
        for gang in self._gangs:
            found += gang.questions(now)
        return found

    def settle(self, now: datetime) -> None:
        """Take note of what answers and the passage of time have brought, in the order closes, gangs, restores."""
        for node, because in self._unclosed.items():
            if node in self._restores:
                self.telling.refuse(self._restores[node], because, now)
        for node, home in self._homes.items():
            home.settle(now)
            self._tell_close(node, home, now)
        if all(home.shut or home.over or self._leaving(home) for home in self._homes.values()):
            self._begin(now)
        for gang in self._gangs:
            gang.settle(now)
            if gang.phase is Evicting.REFUSED and gang.because is not None:
                self.telling.refuse(gang.index, gang.because, now, gang.result)
        for node, home in self._homes.items():
            self._send_home(node, home)
            home.settle(now)
            self._tell_restore(node, home, now)

    def _begin(self, now: datetime) -> None:
        lent = frozenset(home.name for node, home in self._homes.items() if home.shut and self._lent[node])
        for gang in self._gangs:
            if not gang.waits:
                continue
            refused = self._closed_not(gang)
            if refused is not None:
                gang.stop(refused)
            else:
                gang.closed(lent, now)

    def _closed_not(self, gang: Gang) -> Because | None:
        """Why a node of the gang could not be closed; a node that is gone need not be."""
        for home in self._homes.values():
            if self._hosts(home, gang.step) and not home.shut and not home.gone:
                return home.because or Because(Reason.NODE_CHANGED, {"node": home.name, "why": "it is not closed"})
        return None

    def _hosts(self, home: Homeward, step: EvictGang) -> bool:
        return any(member.node in (home.name, home.node) for member in step.members)

    def _send_home(self, node: NodeUid, home: Homeward) -> None:
        gangs = [gang for gang in self._gangs if self._hosts(home, gang.step)]
        left = [because for step, because in self._left if self._hosts(home, step)]
        left += [gang.because for gang in gangs if gang.because is not None]
        if left:
            home.abandon(left[0])
        elif node in self._restores and all(gang.left(home.name, home.node) for gang in gangs):
            home.go()

    def _tell_close(self, node: NodeUid, home: Homeward, now: datetime) -> None:
        index = self._closes.get(node)
        if index is None:
            return
        if home.shut:
            self.telling.done(index, now)
        elif home.over and not self.telling.ended(index) and home.because is not None:
            self.telling.refuse(index, home.because, now, self._result)

    def _tell_restore(self, node: NodeUid, home: Homeward, now: datetime) -> None:
        index = self._restores.get(node)
        if index is None:
            return
        if home.phase is Returning.RESTORED:
            since = home.closed_at or now
            self.telling.done(index, now, {"return_seconds": ((home.restored_at or now) - since).total_seconds()})
        elif home.over and home.because is not None:
            # Open to its borrowers again is not refused but called off: the loan goes on.
            reopened = home.phase is Returning.REOPENED and self._closes_done(node)
            self.telling.refuse(index, home.because, now, Result.CANCELLED if reopened else self._result)
        elif home.stuck is not None:
            self.telling.block(index, home.stuck, now)

    def status(self) -> list[tuple[int, str]]:
        """Step index and phase of every step that is not over."""
        found = [(gang.index, gang.phase.value) for gang in self._gangs]
        for node, home in self._homes.items():
            index = self._restores.get(node, self._closes.get(node, -1))
            found.append((index, home.phase.value))
        return sorted(found)
