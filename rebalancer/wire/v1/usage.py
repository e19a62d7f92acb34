"""What pools and loans used, by the hour, for chargeback; and the running totals that a restart goes on from.

Records are appended and never changed: a correction is a further record that names the one it replaces.
"""

from __future__ import annotations

from rebalancer.wire.envelope import Count, Moment, Name, Shape, Text, Whole


class PoolUsage(Shape):
    """Where a pool's GPUs were in one UTC hour: own, lent, transit, idle and unhealthy add up to capacity."""

    id: Name
    """Stable for pool, hour and revision: the same told twice is one; of one id the last told counts."""
    pool: Name
    since: Moment
    """Later than the hour's beginning where accounting began in it."""
    until: Moment
    capacity_gpu_seconds: float
    own_gpu_seconds: float
    """Held on nodes at home."""
    lent_gpu_seconds: float
    """Of nodes on loan, used or not, and what borrowers still hold on the way home."""
    transit_gpu_seconds: float
    """Changing hands and held by nobody."""
    idle_gpu_seconds: float
    """At home and free."""
    unhealthy_gpu_seconds: float
    """Not ready, starting, missing, or free where nobody may land."""
    corrects: Text = ""
    """Id of the record that this one replaces."""


class LoanUsage(Shape):
    """What a gang used of a loan in one UTC hour, or in the part of it in which the loan was open."""

    id: Name
    """Stable for loan, gang, hour and revision: the same told twice is one; of one id the last told counts."""
    loan: Name
    since: Moment
    until: Moment
    lender: Name
    borrower_namespace: Text
    """Empty, as the queue, if no pod of the gang was seen."""
    borrower_queue: Text
    gang: Text
    model: Text
    allocated_gpu_seconds: float
    """Held by the gang's pods."""
    busy_gpu_seconds: float
    """The part of it in which telemetry judged the node busy."""
    transit_gpu_seconds: float
    """Changing hands and held by nobody; with the gang that the loan was made for."""
    lost_gpu_seconds: float
    """Work that our evictions undid, in the hour of the eviction."""
    unused_gpu_seconds: float = 0.0
    """On loan and held by nobody; with the gang that the loan was made for."""
    node: Text = ""
    """Uid."""
    node_name: Text = ""
    corrects: Text = ""
    """Id of the record that this one replaces."""


class UsageRow(Shape):
    """One hour of a pool (``loan`` empty) or of a loan and gang, in GPU-milliseconds as far as it was accounted."""

    loan: Text
    gang: Text
    hour: Moment
    values: tuple[Whole, ...]
    """Pool: capacity, own, lent, transit, idle, unhealthy. Loan: allocated, busy, transit, lost, unused."""
    told: tuple[Whole, ...] = ()
    until: Moment | None = None
    revisions: Count = 0
    namespace: Text = ""
    queue: Text = ""


class LoanMove(Shape):
    """From ``at`` on a loan's node was ``moving``, ``lent``, or home (an empty word)."""

    loan: Name
    at: Moment
    word: Text


class UsageMemory(Shape):
    """A pool's running totals; internal to the product, not part of the promise to subscribers."""

    began: Moment
    upto: Moment
    """How far the totals go."""
    told_until: Moment
    rows: tuple[UsageRow, ...] = ()
    heard: tuple[Name, ...] = ()
    """Evictions whose lost work is in the rows."""
    moves: tuple[LoanMove, ...] = ()
    """Of loans whose record alone does not tell them."""
