"""A process that leads, and while it does asks for one dry-run eviction after the other: for tests that stop it.

Says on stdout, a line each: `leading EPOCH`, `sent KIND` for what came back, `refused` for what was not sent, `over`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from rebalancer.adapters.cluster.connection import connected
from rebalancer.adapters.cluster.hands import ClusterHands
from rebalancer.adapters.cluster.lease import Held, Leadership
from rebalancer.adapters.decode.kubernetes import Reading
from rebalancer.adapters.metrics import Metrics
from rebalancer.core.plan import Member
from rebalancer.core.policy import Acting
from rebalancer.core.protocol.calls import EvictPod
from rebalancer.settings import KubernetesSettings, LeaseSettings

LEASE = LeaseSettings(duration=3, renew=2, retry=0.5)
ACTING = Acting(call_timeout=timedelta(seconds=0.9))
PACE = 0.02  # seconds between two calls


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def main(kubeconfig: Path, namespace: str, identity: str, pod: str) -> None:
    """Until SIGTERM."""
    settings = KubernetesSettings(kubeconfig=kubeconfig, namespace=namespace)
    async with connected(settings) as api:

        async def work(held: Held) -> None:
            say("leading", held.epoch)
            hands = ClusterHands(api, held, ACTING, Reading(), Metrics())
            call = EvictPod(Member("no such uid", namespace, pod, "", 0), "plan", dry_run=True)
            try:
                while True:
                    answer = await hands.perform(call)
                    say("refused" if answer.message.startswith("not sent") else f"sent {answer.kind}")
                    await asyncio.sleep(PACE)
            finally:
                await hands.settled()
                say("over")

        leading = asyncio.create_task(Leadership(api, LEASE, namespace, "act", identity, Metrics()).lead(work))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, leading.cancel)
        with suppress(asyncio.CancelledError):
            await leading


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name in ("kubeconfig", "namespace", "identity", "pod"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    asyncio.run(main(Path(given.kubeconfig), given.namespace, given.identity, given.pod))
