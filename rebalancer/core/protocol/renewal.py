"""A plan that renews loans: the mark of each says a later due time, in one guarded patch; nothing else changes.

Steps do not wait for each other. One that could not be confirmed while the plan was valid is given up, since the
decider brings that loan home by then; a patch that landed all the same tells by its mark. No pod is touched here.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.facts import Node
from rebalancer.core.plan import Plan, RenewLoan, Result
from rebalancer.core.protocol import guard
from rebalancer.core.protocol.edit import NodeEdit
from rebalancer.core.protocol.site import Question, Site
from rebalancer.core.protocol.telling import Telling
from rebalancer.core.reasons import Because, Reason
from rebalancer.core.units import NodeUid


class _Renewal:
    """One loan of the plan."""

    def __init__(self, site: Site, step: RenewLoan, plan: Plan) -> None:
        self.step = step
        self._site, self._plan = site, plan
        self._now = plan.made_at
        self._asked = False
        self.edit = NodeEdit(site.policy.acting, step.node_name, self._later)

    @property
    def given_up(self) -> bool:
        """Whether the plan ran out while nothing is awaited; one look is taken even so, after a restart."""
        return self._asked and not self.edit.out and not self.edit.over and self._now >= self._plan.valid_until

    def questions(self, now: datetime) -> list[Question]:
        """The next call, if it may be made now."""
        self._now = now
        asked = self.edit.questions(now)
        self._asked = self._asked or bool(asked)
        return asked

    def settle(self, now: datetime) -> None:
        """Time passes."""
        self._now = now

    def _later(self, node: Node) -> guard.Edit:
        wanted = guard.renew(node, self.step, self._plan.id, self._site.epoch)
        expired = self._now >= self._plan.valid_until
        return outlived(self._plan) if expired and wanted is not None else wanted


class RenewRun:
    """All renewals of one plan."""

    def __init__(self, site: Site, plan: Plan, telling: Telling) -> None:
        self.plan, self.telling = plan, telling
        self._renewals = {
            index: _Renewal(site, step, plan)
            for index, step in enumerate(plan.steps)
            if isinstance(step, RenewLoan) and not telling.ended(index)
        }

    @property
    def over(self) -> bool:
        """Whether every step has its final outcome."""
        return self.telling.complete

    @property
    def committed(self) -> bool:
        """Whether a mark may already have been written."""
        return any(item.edit.patched for item in self._renewals.values())

    def nodes(self) -> frozenset[NodeUid]:
        """Uids of the nodes it works on."""
        return frozenset(step.node for step in self.plan.steps if isinstance(step, RenewLoan))

    def stop(self, because: Because, result: Result, now: datetime) -> bool:
        """Call off what is not written yet; False if anything may have been."""
        for index, item in self._renewals.items():
            if not item.edit.patched:
                self.telling.refuse(index, because, now, result)
        return not self.committed

    def due(self, now: datetime) -> datetime | None:
        """When something is to be done."""
        times = [item.edit.due(now) for index, item in self._renewals.items() if not self.telling.ended(index)]
        if any(times):
            times.append(max(now, self.plan.valid_until))
        return min((time for time in times if time is not None), default=None)

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        found: list[Question] = []
        for index, item in self._renewals.items():
            if self.telling.ended(index):
                continue
            found += item.questions(now)
            if item.edit.patched:
                self.telling.start(index, now)
        return found

    def settle(self, now: datetime) -> None:
        """Take note of what answers and the passage of time have brought."""
        for index, item in self._renewals.items():
            item.settle(now)
            if item.edit.confirmed:
                self.telling.done(index, now)
            elif item.edit.over and item.edit.because is not None:
                self.telling.refuse(index, item.edit.because, now)
            elif item.given_up:
                self.telling.refuse(index, outlived(self.plan), now)

    def status(self) -> list[tuple[int, str]]:
        """Step index and phase of every step."""
        return [(index, item.edit.phase.value) for index, item in self._renewals.items()]


def outlived(plan: Plan) -> Because:
    """The plan is not valid any more."""
    return Because(Reason.PLAN_EXPIRED, {"valid_until": plan.valid_until.isoformat(timespec="seconds")})
