"""Who may tolerate the on-loan taint, asked of a real API server, and the mutation that adds the toleration."""

import pytest

from tests.deploy.asked import EFFECTIVE_WITHIN, ON_LOAN, OWNER, Object, pod, refused_pod
from tests.servers.controlplane import ControlPlane

pytestmark = pytest.mark.go_binaries("helm")

EVERYTHING = {"operator": "Exists"}
GOOD_PODS = {
    "reclaimable, owned, soon gone": pod(reclaimable="true", owner=OWNER, tolerations=[ON_LOAN]),
    "no such toleration": pod(tolerations=[]),
    "a DaemonSet's pod": pod(owner=OWNER, kind="DaemonSet", tolerations=[ON_LOAN]),
    "everything tolerated without a GPU": pod(gpus=0, tolerations=[EVERYTHING]),
    "the longest grace allowed": pod(reclaimable="true", owner=OWNER, grace=900, tolerations=[ON_LOAN]),
}
BAD_PODS = {
    "without the label": (
        pod(owner=OWNER, tolerations=[ON_LOAN]),
        "needs the label gpu-rebalancer.io/reclaimable=true",
    ),
    "with the label saying no": (pod(reclaimable="false", owner=OWNER, tolerations=[ON_LOAN]), "needs the label"),
    "a bare pod": (pod(reclaimable="true", tolerations=[ON_LOAN]), "needs a controller"),
    "too long a grace": (pod(reclaimable="true", owner=OWNER, grace=901, tolerations=[ON_LOAN]), "longer than 15m"),
    "a GPU pod that tolerates everything": (pod(owner=OWNER, tolerations=[EVERYTHING]), "tolerates every taint"),
}


@pytest.mark.parametrize("asked", GOOD_PODS.values(), ids=GOOD_PODS)
def test_a_pod_is_let_in(governed: ControlPlane, asked: Object) -> None:
    """Who opted in as a whole, and whoever has nothing to do with it."""
    assert refused_pod(governed.api, asked) == ""


@pytest.mark.parametrize(("asked", "said"), BAD_PODS.values(), ids=BAD_PODS)
def test_a_pod_is_refused(governed: ControlPlane, asked: Object, said: str) -> None:
    """Before it is anywhere near a lent node."""
    assert said in refused_pod(governed.api, asked)


def test_the_toleration_is_added_to_what_is_reclaimable(governed: ControlPlane) -> None:
    """With and without tolerations before; never to a pod that could not be recalled."""
    api = governed.api

    def made(asked: Object) -> list[Object]:
        told = api.post("/api/v1/namespaces/default/pods", asked, dryRun="All")
        return [one for one in told["spec"].get("tolerations", []) if one.get("key") == ON_LOAN["key"]]

    other = {"key": "workload", "operator": "Equal", "value": "training", "effect": "NoSchedule"}
    api.wait(lambda: made(pod(reclaimable="true", owner=OWNER, tolerations=[])), EFFECTIVE_WITHIN, "the mutation")
    assert made(pod(reclaimable="true", owner=OWNER, tolerations=[other])) == [ON_LOAN]
    assert made(pod(reclaimable="true", owner=OWNER, tolerations=[ON_LOAN])) == [ON_LOAN]
    assert made(pod(reclaimable="true", tolerations=[])) == []
    assert made(pod(owner=OWNER, tolerations=[])) == []
