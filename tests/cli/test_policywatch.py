"""A policy file that changes while the process runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rebalancer.bootstrap import policywatch
from rebalancer.bootstrap.policywatch import PolicyFile
from rebalancer.core.policy import Policy
from tests.cluster.terms import Pool, policy


async def test_every_valid_change_is_adopted_once_and_an_invalid_one_is_told_once_and_the_old_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policywatch, "EVERY", 0.01)
    path = tmp_path / "policy.yaml"
    path.write_text(policy([Pool("infer-l20", "L20")]))
    file = PolicyFile(path)
    adopted, refused, heard = [file.read()], list[str](), asyncio.Event()

    async def adopt(found: Policy) -> None:
        adopted.append(found)
        heard.set()

    async def refuse(why: str) -> None:
        refused.append(why)
        heard.set()

    following = asyncio.create_task(file.follow(adopt, refuse))
    for text in ("pools: nonsense", policy([Pool("infer-l20", "L20")], acting={"poll": "7s"})):
        heard.clear()
        path.write_text(text)
        await asyncio.wait_for(heard.wait(), 5)
    following.cancel()
    assert [str(path) in why for why in refused] == [True]
    assert [one.acting.poll.total_seconds() for one in adopted[1:]] == [7.0]
