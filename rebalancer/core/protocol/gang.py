"""One gang on its way out: read, checked, told, and evicted as one; then waited for until it is really gone.

It is read once while its nodes are being closed; nothing follows from what is seen before they are. Before the first
accepted eviction anything that forbids it leaves the whole gang alone. After it the gang is finished, whatever it
takes within its deadline; a half-gone gang is told at once. An eviction names a pod by uid, so a pod that took over a
name is never touched, and 201 means releasing, never gone.
"""

from __future__ import annotations

from datetime import datetime
from functools import partial

from rebalancer.core.facts import Pod
from rebalancer.core.plan import EvictGang, Method, Plan, Result
from rebalancer.core.protocol.calls import Answer, AnswerKind, ReadMembers
from rebalancer.core.protocol.check import Check, Verdict, unwanted
from rebalancer.core.protocol.members import Members
from rebalancer.core.protocol.notice import Notice
from rebalancer.core.protocol.pace import Ask, backoff
from rebalancer.core.protocol.site import BudgetKey, Question, Site, why
from rebalancer.core.protocol.tables import EVICT, Evicted, Evicting, move
from rebalancer.core.protocol.telling import Telling
from rebalancer.core.reasons import Because, Reason, sentence
from rebalancer.core.units import PodUid

ENDS = frozenset({Evicting.GONE, Evicting.REFUSED})


class Gang:
    """The eviction of one gang, or of an elastic gang's surplus; ``because`` is why it was refused."""

    def __init__(self, site: Site, plan: Plan, index: int, step: EvictGang, telling: Telling) -> None:
        self.step, self.index = step, index
        self.phase = Evicting.READING
        self.because: Because | None = None
        self.result: Result | None = None
        self.members = Members(site, plan, step, begun=telling.begun(index))
        self._site, self._plan, self._telling = site, plan, telling
        self._acting = site.policy.acting
        self._live: dict[PodUid, Pod] = {}
        self._lent: frozenset[str] = frozenset()
        self._shut = False
        self._asked_at: datetime | None = None
        self._read = Ask(self._acting, step.gang)
        self._fresh = False
        self._polls = 0
        self._stuck = False
        self._check: Check | None = None
        named = ((item.namespace, budget) for item in step.members for budget in item.budgets)
        self._budgets: dict[BudgetKey, None] = dict.fromkeys(named)
        self._notice = Notice(self._acting, step)
        self._blocked_since: datetime | None = None
        self._blocked_times = 0

    @property
    def over(self) -> bool:
        """Whether it is gone or refused."""
        return self.phase in ENDS

    @property
    def committed(self) -> bool:
        """Whether a real eviction may have been accepted."""
        members = self.members
        return members.touched or members.out or members.doubtful or members.unsure

    def left(self, *node: str) -> bool:
        """Whether it goes for certain and nothing of it is left on this node (uid or name), wherever else it hangs."""
        if self.phase is Evicting.GOING:
            return not any(item.member.node in node for item in self.members.staying)
        return self.phase is Evicting.GONE

    @property
    def waits(self) -> bool:
        """Whether its nodes are not closed yet, as far as it has been told."""
        return not self._shut and not self.over

    def closed(self, lent: frozenset[str], now: datetime) -> None:
        """All nodes are closed; what was asked lately still counts. ``lent``: names of the lent ones among them."""
        self._shut, self._lent = True, lent
        if self._asked_at is not None and now - self._asked_at > self._acting.poll:
            self._fresh, self._read = False, Ask(self._acting, self.step.gang)  # nor does an answer that is still out

    def stop(self, because: Because, result: Result | None = None) -> None:
        """Leave it alone; only before anything was evicted."""
        self.result = result
        self._fail(because)

    def due(self, now: datetime) -> datetime | None:
        """When something is to be done; None while answers or nodes are awaited."""
        times: list[datetime | None] = [self._read.due(now)] if self._watching else []
        if self.phase is Evicting.CHECKING and self._check is not None:
            times.append(self._check.due(now))
        elif self.phase is Evicting.NOTICING:
            times.append(self._notice.due(now))
        elif self.phase is Evicting.WAITING:
            times.append(self._notice.ends)
        elif self.phase is Evicting.EVICTING:
            times.append(self.members.due(now))
        return min((max(now, time) for time in times if time is not None), default=None)

    def questions(self, now: datetime) -> list[Question]:
        """Calls that may be made now."""
        found: list[Question] = []
        if self.phase is Evicting.CHECKING and self._check is not None:
            found = self._check.questions(now)
        elif self.phase is Evicting.NOTICING:
            found = self._notice.questions(tuple(item.member for item in self.members.staying), now)
        elif self.phase is Evicting.EVICTING:
            found = self.members.questions(now, lambda: self._telling.start(self.index, now))
        if self._watching and self._read.ready(now):
            self._read.sent()
            members = tuple(item.member for item in self.members.staying)
            self._asked_at = now
            found.append(Question(ReadMembers(members), partial(self._seen, self._read)))
        return found

    def settle(self, now: datetime) -> None:
        """Take note of what answers and the passage of time have brought."""
        for phase, judge in (
            (Evicting.READING, self._judge_live),
            (Evicting.CHECKING, self._judge_check),
            (Evicting.NOTICING, self._judge_notice),
            (Evicting.WAITING, self._judge_wait),
            (Evicting.EVICTING, self._judge_evictions),
            (Evicting.GOING, self._judge_going),
        ):
            if self.phase is phase:
                judge(now)

    @property
    def _watching(self) -> bool:
        if self.phase is Evicting.WAITING:
            return self._notice.given_at is not None
        if self.phase is Evicting.EVICTING:
            # An eviction that is never answered in time may be of a pod that is gone by now: the API server looks for
            # up to ten seconds whether another pod of that name becomes the one that was meant.
            return self.members.split or self.members.doubtful
        if self.phase is Evicting.READING:
            return self._shut or not self._fresh
        return self.phase is Evicting.GOING

    def _seen(self, read: Ask, answer: Answer, now: datetime) -> None:
        if read is not self._read:
            return
        if answer.kind is AnswerKind.OK:
            slow = self._stuck or self.members.split
            most = self._acting.retry_max if slow else self._acting.retry_first
            self._read.again(now + min(self._acting.poll * int(2 ** min(self._polls, 16)), most))
            self._polls += 1
            self._live, self._fresh = {pod.uid: pod for pod in answer.pods}, True
            self.members.note(self._live)
            return
        again = self._read.failed(answer, now) and answer.kind is not AnswerKind.FORBIDDEN
        if not again and self.phase is Evicting.READING and not self.committed:
            self._fail(why(answer, self.step.gang, self._acting.call_timeout.total_seconds()))
        elif not again:
            self._read.again(now + self._acting.retry_max)

    def _judge_live(self, now: datetime) -> None:
        if not self._fresh or not self._shut:
            return
        self._fresh = False
        wanted = self.members.wanted
        if not wanted:
            self._accepted(now)
            return
        refused = [unwanted(self._live[item.member.uid], self._lent, self._site, self._plan) for item in wanted]
        first = next((because for because in refused if because is not None), None)
        if first is not None:
            self._fail(first)
            return
        self._polls = 0
        left = {item.member.uid: self._live[item.member.uid] for item in wanted}
        self._check = Check(self._site, self._plan, self.step, left)
        self._move(Evicted.READ)
        if self.members.touched:
            self._start()  # what is half gone is finished; what still forbids it will say so

    def _judge_check(self, now: datetime) -> None:
        if self._check is None or not self._check.over:
            return
        checked = self._check.checked()
        for uid in sorted(self._check.gone):
            self.members.left(uid)
        if checked.verdict is Verdict.REFUSED:
            self._fail(checked.because)
        elif checked.verdict is not Verdict.PASSED:
            self._blocked(checked.because, now, waits=checked.verdict is Verdict.WAIT)
        elif self.members.wanted and self._notice.wanted(self._live.values()):
            self._move(Evicted.NOTICE)
        elif now < self._notice.ends:
            self._move(Evicted.TOLD)
        else:
            self._budgets.update(dict.fromkeys(sorted(checked.covers)))
            for key, uids in sorted(checked.covers.items()):
                self._site.flights.reserve(key, uids)
            self._start()

    def _blocked(self, because: Because, now: datetime, *, waits: bool) -> None:
        """Try again later if that may help: for what falls due, or while nothing certain can be said."""
        due = self._plan.method is Method.RETURN and self._plan.pressing
        self._blocked_since = self._blocked_since or now
        limit = self._blocked_since + self._acting.retry_deadline
        if (due or waits) and now < (max(limit, self.step.deadline) if due else limit):
            if due:
                self._telling.block(self.index, because, now)
            self._again(now + backoff(self._acting, self.step.gang, self._blocked_times))
            self._blocked_times += 1
        else:
            self._fail(because)

    def _again(self, at: datetime) -> None:
        self._fresh = False
        self._site.flights.release(self.members.all)
        if not self._read.out:
            self._read.again(at)
        self._move(Evicted.RECHECK)

    def _judge_notice(self, now: datetime) -> None:
        if self._notice.given_at is not None:
            self._read.again(now + self._acting.poll)
            self._fresh = False
            self._move(Evicted.TOLD)

    def _judge_wait(self, now: datetime) -> None:
        if self._fresh:
            self._fresh = False
            self._notice.heard(self._live.values())
        if now >= self._notice.ends or not self.members.wanted:
            self._again(now)

    def _start(self) -> None:
        self.members.forget()
        self._move(Evicted.PASSED)

    def _judge_evictions(self, now: datetime) -> None:
        members = self.members
        if not members.wanted:
            self._site.flights.let_go(self.step.gang)
            self._accepted(now)
        elif members.trouble is None or (members.out and not members.touched):
            return
        elif members.touched:
            self._half_gone(members.trouble, now)
        elif members.doubtful:
            self._blocked(members.trouble, now, waits=True)
        elif members.trouble.reason is Reason.BUDGET_BLOCKED:
            self._blocked(members.trouble, now, waits=False)
        else:
            self._fail(members.trouble)

    def _half_gone(self, trouble: Because, now: datetime) -> None:
        because = self.members.half(trouble, sentence(trouble))
        self._telling.block(self.index, because, now)
        for key in self._budgets:
            self._site.flights.split.setdefault(key, self.step.gang)
        if self.members.spent and now >= self.step.deadline:
            self._fail(because)

    def _accepted(self, now: datetime) -> None:
        self._move(Evicted.ACCEPTED if self.members.staying else Evicted.ALL_GONE)
        self._told_gone(now)

    def _judge_going(self, now: datetime) -> None:
        late = self.members.late(now, self._acting.stuck_after)
        if not self.members.staying:
            self._move(Evicted.ALL_GONE)
            self._told_gone(now)
        elif late is not None:
            self._stuck = True
            self._telling.block(self.index, late, now)

    def _told_gone(self, now: datetime) -> None:
        if self.phase is Evicting.GONE:
            self._site.flights.release(self.members.all)
            lost = self.step.lost_gpu_seconds if self.members.ours else 0.0
            whose = {"workload": self.step.workload, "namespace": self.step.namespace}
            self._telling.done(self.index, now, {"members": self.members.ours, "lost_gpu_seconds": lost, **whose})

    def _fail(self, because: Because) -> None:
        self.because = because
        self._site.flights.release(self.members.all)
        self._site.flights.let_go(self.step.gang)
        self._move(Evicted.FAILED)

    def _move(self, event: Evicted) -> None:
        self.phase = move(EVICT, self.phase, event)
