"""The only place where adapters meet the core: days that are lived in lockstep, roles that run, journals replayed.

It puts objects together and ends them in the right order. No decision, no wording and no protocol lives here.
"""

from rebalancer.bootstrap.day import demo
from rebalancer.bootstrap.replaying import replay
from rebalancer.bootstrap.service import run, unhindered

__all__ = ["demo", "replay", "run", "unhindered"]
