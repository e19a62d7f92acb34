"""`make cluster`: a real control plane with a GPU fleet, a real broker and a played Prometheus, for people.

Runs until Ctrl-C and leaves its folder behind. What it prints is all that is needed to point kubectl and
`rebalancer run` at it. It is the tests' own harness: nothing in it exists only for show.
"""

import argparse
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import yaml

from tests.servers import fleet
from tests.servers.boundloads import BoundLoads
from tests.servers.controlplane import ControlPlane
from tests.servers.exporters import Exporters
from tests.servers.goparts import binary
from tests.servers.kafka import KafkaServer
from tests.servers.manifests import Work

OURS = "gpu-rebalancer"  # the namespace of its Leases and brakes
POLICY = Path(__file__).with_name("cluster-policy.yaml")
ENDING = (signal.SIGINT, signal.SIGTERM)
INFERENCE_NODES, TRAINING_NODES = 12, 4
GUIDE = """
A cluster runs: {nodes} GPU nodes, inference in namespace {serving}, training in namespace {research}.

  export KUBECONFIG={kubeconfig}
  {kubectl} get nodes -L node-pool
  {kubectl} get pods -A
  {kubectl} scale -n {serving} deployment/chat --replicas=9     # inference wants its nodes back

Settings and policy (shadow: nothing is touched) lie ready; deploy/README.md goes on from here:

  export SETTINGS={settings}
  .venv/bin/rebalancer topics apply --config $SETTINGS
  .venv/bin/rebalancer run --config $SETTINGS
  .venv/bin/rebalancer mode infer-a100 act --config $SETTINGS   # in another shell, when you have watched for a while

Logs of its parts: {folder}/*.log. Ctrl-C ends it, and leaves that folder for you to remove.
"""


def main(words: list[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.servers.cluster", description=__doc__)
    parser.add_argument("--folder", type=Path, help="where logs, data and settings go; a fresh one by default")
    given = parser.parse_args(words)
    folder: Path = (given.folder or Path(tempfile.mkdtemp(prefix="gpu-cluster-"))).absolute()
    for number in ENDING:
        signal.signal(number, _interrupt)
    try:
        with running(folder) as guide:
            _tell(guide)
            threading.Event().wait()
    except KeyboardInterrupt:
        _tell("ended")
    return 0


def _interrupt(*_: object) -> None:
    """Unwind from wherever it is, once: what ends the parts must not be interrupted itself."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The whole thing in `folder`, running; what to tell a person about it."""
    with ExitStack() as stack:
        _tell("starting the control plane, the broker and the fleet ...")
        control_plane = stack.enter_context(ControlPlane(folder))
        kafka = stack.enter_context(KafkaServer(folder / "kafka"))
        control_plane.api.post("/api/v1/namespaces", {"metadata": {"name": OURS}})
        serving, research = populate(control_plane)
        loads = stack.enter_context(BoundLoads(control_plane.api))
        names = [node["metadata"]["name"] for node in control_plane.api.items("/api/v1/nodes")]
        played = dict.fromkeys(names, (8, "A100"))
        exporters = stack.enter_context(Exporters(played, loads, loads.holders))
        yield GUIDE.format(
            nodes=len(names),
            serving=serving,
            research=research,
            kubeconfig=control_plane.kubeconfig(),
            kubectl=_kubectl(folder),
            settings=_settings(folder, control_plane, kafka, exporters),
            folder=folder,
        )


def populate(control_plane: ControlPlane) -> tuple[str, str]:
    """Nodes, services that leave most of theirs idle, and more gangs than the training nodes take.

    Returns:
        The namespaces of inference and of training.
    """
    fleet.gpu_nodes(control_plane, "infer-a100", "A100", INFERENCE_NODES)
    fleet.gpu_nodes(control_plane, "train-a100", "A100", TRAINING_NODES, owner="training")
    serving, research = (fleet.namespace(control_plane, name=name) for name in ("serving", "research"))
    fleet.inference(control_plane, serving, "chat", 3, Work(lendable=False))
    fleet.inference(control_plane, serving, "embed", 2, Work(gpus=2, lendable=False))
    fleet.pdb(control_plane, serving, "chat", unavailable=1)
    gang = Work(checkpoint=5, grace=60)
    for number in range(1, 4):
        fleet.jobset(control_plane, research, f"llm-{number}", 2, gang)
    fleet.volcano_gang(control_plane, research, "mpi", 2, gang)
    fleet.plain_job(control_plane, research, "sweep", 2, gang)
    return serving, research


def _settings(folder: Path, control_plane: ControlPlane, kafka: KafkaServer, exporters: Exporters) -> Path:
    policy, settings = folder / "policy.yaml", folder / "settings.yaml"
    policy.write_text(POLICY.read_text())
    held = {
        "cluster": "try-out",
        "kafka": {"bootstrap": kafka.bootstrap},
        "policy": str(policy),
        "kubernetes": {"kubeconfig": str(control_plane.kubeconfig()), "namespace": OURS},
        "dcgm": {"source": "prometheus", "url": exporters.url, "every": 5},
        "http": {"host": "127.0.0.1", "port": 9500},
        "data_dir": str(folder / "scratch"),
    }
    settings.write_text(yaml.safe_dump(held, sort_keys=False))
    return settings


def _kubectl(folder: Path) -> Path:
    """A file to call as kubectl: the control plane's binary has it inside."""
    script = folder / "kubectl"
    script.write_text(f'#!/bin/sh\nexec {binary("kubemini")} kubectl "$@"\n')
    script.chmod(0o755)
    return script


def _tell(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
