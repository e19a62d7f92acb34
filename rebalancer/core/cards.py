"""What one physical GPU has reported lately: its signals, its signs of life, its faults.

A helper of ``activity`` and of nothing else. It keeps the latest believable values of one card and of its MIG
instances and says what they amount to; nodes, counts and ``since`` are the judge's.
"""

from __future__ import annotations

from datetime import datetime

from rebalancer.core.policy import Activities
from rebalancer.core.pulse import Pulse, larger, sane
from rebalancer.core.telemetry import DeviceReading
from rebalancer.core.units import Activity

WHYS = ("frozen", "disagreement", "silent", "no-witness")
"""Why a card is unknown, the most telling first."""
FAULTS = frozenset({46, 48, 62, 64, 74, 79, 94, 95, 119, 120})
"""XID codes after which a GPU needs a reset or replacement (NVIDIA's XID catalogue). Codes that an
application causes by itself (13, 31, 43, 45) and codes we do not know take no capacity away."""
MAX_INSTANCES = 8
"""A card divides into at most 7 MIG instances; one more for the row of the card itself."""
MOST = (1.0, 100.0, 1.4e14, 5_000.0, 200.0)
"""Largest credible engine_active (ratio), gpu_util (percent), energy (millijoules: more than 4 years at 1
kW, below all of DCGM's 64-bit blanks), power (watts), temperature (degrees Celsius)."""
FLAT_OUT, NEAR_IDLE_WATTS = 0.99, 100.0
LARGE_WATTS, LARGE_MIB = 150.0, 24_576.0
"""A card seen above these idles at tens of watts and cannot be flat out below ``NEAR_IDLE_WATTS``; small
ones can."""


class Unit:
    """One whole GPU, or one MIG instance: the unit that is busy or idle. Utilisations are ratios 0..1."""

    __slots__ = (
        "activity",
        "at",
        "engine",
        "engine_at",
        "former",
        "last",
        "level",
        "signal",
        "util",
        "util_at",
    )

    def __init__(self, last: datetime) -> None:
        self.engine: float | None = None
        self.util: float | None = None
        self.engine_at: datetime | None = None
        self.util_at: datetime | None = None
        self.at: datetime | None = None
        self.last = last
        self.activity: Activity | None = None
        self.former: Activity | None = None
        self.level: float | None = None
        self.signal = ""

    def take(self, engine: float | None, util: float | None, at: datetime) -> bool:
        """Adopt the signals of one scrape; True if a value moved since the scrape before."""
        if at != self.last:
            self.former, self.last = self.activity, at
        moved = False
        if engine is not None:
            moved = engine != self.engine
            self.engine = larger(engine, self.engine) if self.engine_at == at else engine
            self.engine_at = self.at = at
        if util is not None:
            moved = moved or util != self.util
            self.util = larger(util, self.util) if self.util_at == at else util
            self.util_at = self.at = at
        return moved

    def judge(self, rules: Activities, fresh: datetime) -> str:
        """Why it is unknown, or "" after setting level, signal and activity."""
        engine = self.engine if self.engine_at is not None and self.engine_at >= fresh else None
        util = self.util if self.util_at is not None and self.util_at >= fresh else None
        self.signal = "engine_active" if engine is not None else "gpu_util" if util is not None else ""
        self.level = level = util if engine is None else engine
        self.activity = None
        if level is None:
            return "silent"
        if engine is not None and util is not None and _contradict(engine, util, rules):
            self.level = None
            return "disagreement"
        if level < rules.idle_below:
            self.activity = Activity.IDLE
        else:
            self.activity = Activity.BUSY if level >= rules.busy_from else self.former or Activity.BUSY
        return ""


def _contradict(engine: float, util: float, rules: Activities) -> bool:
    low, high = (engine, util) if engine < util else (util, engine)
    return low < rules.idle_below and high >= rules.busy_from


class Card:
    """One physical GPU with the rows of one scrape merged, and what :meth:`judge` found at the last one."""

    __slots__ = (
        "_large",
        "_power",
        "_pulse",
        "_units",
        "_xid",
        "busy",
        "busy_at",
        "changes",
        "faults",
        "hung_since",
        "level",
        "oldest",
        "seen",
        "signal",
        "why",
    )

    def __init__(self) -> None:
        self._units: dict[str, Unit] = {}
        self._pulse = Pulse()
        self._power: float | None = None
        self._large = False
        self._xid: int | None = None
        self.faults: frozenset[int] = frozenset()
        self.changes = 0
        self.hung_since: datetime | None = None
        self.why, self.signal = "silent", ""
        self.busy = self.seen = False
        self.level: float | None = None
        self.oldest: datetime | None = None
        self.busy_at: datetime | None = None

    def take(self, reading: DeviceReading, at: datetime) -> int:
        """Adopt one row; returns how many values were out of range: they neither update nor zero anything."""
        raw = (reading.engine_active, reading.gpu_util, reading.energy, reading.power, reading.temperature)
        kept = tuple(sane(value, most) for value, most in zip(raw, MOST, strict=True))
        refused = kept.count(None) - raw.count(None)
        unit = self._units.get(reading.instance)
        if unit is None:
            if len(self._units) >= MAX_INSTANCES:
                return refused + 1
            unit = self._units[reading.instance] = Unit(at)
        engine, util, energy, power, temperature = kept
        moved = unit.take(engine, None if util is None else util / 100.0, at)
        self._pulse.take((energy, power, temperature), at, moved=moved)
        self._size(power, reading.memory_used)
        self._note(reading.xid)
        return refused

    def judge(self, rules: Activities, at: datetime, *, believe: bool) -> None:
        """Set what this card amounts to at ``at``, the time of the newest sample of its node."""
        frozen = self._pulse.frozen(rules.frozen_scrapes)
        unproven = "" if believe or self._pulse.witnessed(rules.frozen_scrapes) else "no-witness"
        fresh = at - rules.freshness
        self.busy, self.busy_at, self.oldest = False, None, None
        whys = set()
        required = self._required()
        for unit in required:
            why = unit.judge(rules, fresh) or ("frozen" if frozen else "")
            self._gather(unit, why)
            whys.add(why or (unproven if unit.activity is Activity.IDLE else ""))
        self.why = next((why for why in WHYS if why in whys), "")
        self.seen = "silent" not in whys
        self._amount(required, self._whole(rules, fresh, frozen=frozen))
        self._watch(at)

    def forget(self, before: datetime) -> bool:
        """Drop instances silent since before then; True when nothing is left of the card."""
        for name in [name for name, unit in self._units.items() if unit.last < before]:
            del self._units[name]
        return not self._units

    def _required(self) -> list[Unit]:
        """The instances of a divided card, or the card itself."""
        instances = [unit for name, unit in self._units.items() if name]
        return instances or list(self._units.values())

    def _whole(self, rules: Activities, fresh: datetime, *, frozen: bool) -> float | None:
        """The divided card's own row: it can prove it busy and says how busy, but nothing depends on it."""
        whole = self._units.get("")
        if whole is None or len(self._units) == 1 or whole.judge(rules, fresh) or frozen:
            return None
        if whole.activity is Activity.BUSY:
            self._gather(whole, "")
        return whole.level

    def _gather(self, unit: Unit, why: str) -> None:
        if unit.at is None:
            return
        self.oldest = unit.at if self.oldest is None else min(self.oldest, unit.at)
        if not why and unit.activity is Activity.BUSY:
            self.busy = True
            self.busy_at = unit.at if self.busy_at is None else max(self.busy_at, unit.at)

    def _amount(self, units: list[Unit], whole: float | None) -> None:
        levels = [unit.level for unit in units if unit.level is not None]
        mean = sum(levels) / len(levels) if levels else None
        self.level = None if self.why else mean if whole is None else whole
        signals = {unit.signal for unit in units}
        self.signal = units[0].signal if len(signals) == 1 else "mixed"

    def _size(self, power: float | None, memory: float | None) -> None:
        self._power = self._power if power is None else power
        self._large = self._large or (power or 0.0) > LARGE_WATTS or (memory or 0.0) > LARGE_MIB

    def _watch(self, at: datetime) -> None:
        """Flat out near idle power is how a job spins that waits for ever (nccl#968)."""
        flat_out = self._large and self.level is not None and self.level >= FLAT_OUT
        if flat_out and self._power is not None and self._power < NEAR_IDLE_WATTS:
            self.hung_since = self.hung_since or at
        else:
            self.hung_since = None

    def _note(self, xid: int | None) -> None:
        """The gauge is sticky: a fault stands until the gauge is back at 0, whatever code came after it.

        What stands when the card is first seen may be old, so it is a fault but no change.
        """
        if xid is None or xid == self._xid:
            return
        self.changes += self._xid is not None and xid != 0
        self._xid = xid
        self.faults = frozenset() if xid == 0 else self.faults | ({xid} & FAULTS)
