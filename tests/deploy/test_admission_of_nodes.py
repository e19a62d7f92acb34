"""The policy of node labels on a real API server: the good is let in, the bad refused with a sentence to act on.

Objects are only asked for (`dryRun=All`) where nothing needs to stay. The policy is the chart's, rendered by helm, with
the chart's default pools.
"""

import pytest

from tests.deploy.asked import EFFECTIVE_WITHIN, RELEASE, Object, labelled, refused
from tests.servers.adminclient import ApiError
from tests.servers.controlplane import ControlPlane

pytestmark = pytest.mark.go_binaries("helm")

GOOD_NODES = {
    "canonical labels": labelled(node_pool="infer-a100", gpu_model="A100", workload_type="inference", gpu_count="8"),
    "no such label at all": labelled(zone="a"),
    "a cloud's spelling beside the canonical one": labelled(gpu_model="H100", nvidia_com__gpu_product="x"),
    "a legacy tier that says the same": labelled(workload_type="inference", tier="serving"),
    "a vendor in the loose key": labelled(accelerator="nvidia", gpu_model="L20"),
    "a tier of somebody else": labelled(tier="gold"),
}
BAD_NODES = {
    "a boolean tier": (labelled(tier="true"), "workload-type must be one of inference, training, batch"),
    "a boolean model": (labelled(gpu_type="yes"), "gpu-model must be one of H100, A100"),
    "a model that the policy does not name": (labelled(gpu_model="a-100"), "gpu-model=a-100 must be one of"),
    "a class that does not exist": (labelled(workload_type="serving"), "must be one of inference, training, batch"),
    "a pool that the policy does not name": (labelled(node_pool="infer-b200"), "node-pool=infer-b200 must be one of"),
    "legacy and canonical tier disagree": (labelled(workload_type="inference", tier="training"), "disagree"),
    "two spellings of the model disagree": (
        labelled(gpu_model="H100", gpu_product="NVIDIA-A100-SXM4-80GB"),
        "disagree",
    ),
    "a model that is not the pool's": (labelled(node_pool="infer-a100", gpu_model="L20"), "pool infer-a100 is A100"),
    "a class that is not the pool's": (labelled(node_pool="infer-a100", tier="training"), "is for inference"),
    "a count that is no number": (labelled(gpu_count="eight"), "must be a count"),
}


@pytest.mark.parametrize("node", GOOD_NODES.values(), ids=GOOD_NODES)
def test_a_node_is_let_in(governed: ControlPlane, node: Object) -> None:
    """Nothing is asked of labels that are not governed."""
    assert refused(governed.api, node) == ""


@pytest.mark.parametrize(("node", "said"), BAD_NODES.values(), ids=BAD_NODES)
def test_a_node_is_refused(governed: ControlPlane, node: Object, said: str) -> None:
    """With the canonical key and the allowed values."""
    assert said in refused(governed.api, node)


def test_a_node_that_was_wrong_before_can_still_be_cordoned(governed: ControlPlane, home: str) -> None:
    """Only a write that changes such a label is looked at; a new wrong one is refused there too."""
    api, path = governed.api, "/api/v1/nodes/wrong-before"
    policy = {"metadata": {"name": f"{home}-{RELEASE}-node-labels"}}
    binding = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{policy['metadata']['name']}"
    kept = api.get(binding)
    api.delete(binding)
    wrong = labelled(tier="true")
    wrong["metadata"]["name"] = "wrong-before"
    try:
        api.wait(lambda: not refused(api, wrong), EFFECTIVE_WITHIN, "the policy to be unbound")
        api.post("/api/v1/nodes", wrong)
        api.apply(
            [
                {key: kept[key] for key in ("apiVersion", "kind", "spec")}
                | {"metadata": {"name": kept["metadata"]["name"]}}
            ]
        )
        api.wait(lambda: refused(api, labelled(tier="true")), EFFECTIVE_WITHIN, "the policy to be bound")
        assert api.patch(path, {"spec": {"unschedulable": True}})["spec"]["unschedulable"] is True
        with pytest.raises(ApiError, match="workload-type must be one of"):
            api.patch(path, {"metadata": {"labels": {"tier": "false"}}})
    finally:
        api.request("DELETE", path)
