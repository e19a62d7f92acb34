"""The chart installed on the test control plane, with its pods' command lines run beside it instead of in containers.

Objects come from `helm template`, rights included; a command is the container's own, word for word, as the service
account that the pod names. Only paths differ: what the pod mounts lies in a folder here. Nothing of ours is faked.
"""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.deploy.manifests import CHART, hook
from tests.deploy.rendering import render
from tests.servers.controlplane import ControlPlane
from tests.servers.ports import free_ports
from tests.servers.processes import Keeper, Part

MOUNTED = "/etc/gpu-rebalancer"
READY_WITHIN = 90.0  # seconds; 8 on quiet cores
FOREIGN = {"ServiceMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, which is not there."""
Object = dict[str, Any]


class Installation:
    """One release in a namespace of its own."""

    def __init__(self, control_plane: ControlPlane, folder: Path, namespace: str, values: Mapping[str, Any]) -> None:
        self.namespace = namespace
        self._control_plane, self._folder = control_plane, folder
        self._keeper = Keeper()
        self._values = dict(values)
        self._applied: list[Object] = []
        self._parts: list[Part] = []
        self.objects: list[Object] = []

    def install(self, **values: Any) -> None:
        """`helm install` or `upgrade`: what is new is applied, what is no longer rendered is deleted."""
        self._values |= values
        self.objects = render(CHART, self._values, namespace=self.namespace)
        wanted = [one for one in self.objects if not hook(one) and one["kind"] not in FOREIGN]
        self._apply(wanted)
        names = {_name(one) for one in wanted}
        self._delete([one for one in self._applied if _name(one) not in names])
        self._applied = wanted

    def apply_hooks(self) -> None:
        """The objects of the pre-delete hook but its Job, which runs here."""
        hooks = [one for one in self.objects if hook(one)]
        self._apply(hooks)
        self._applied += hooks

    def uninstall(self) -> None:
        """Everything that was applied, gone."""
        self._delete(self._applied)
        self._applied = []

    def replica(self, name: str) -> tuple[Part, str]:
        """The Deployment's container, started; the address of its pages."""
        pod = self._pod("Deployment")
        (port,) = free_ports(1)
        line, environment = self._started_as(pod, name)
        part = Part(name, line, self._folder, self._keeper, {**environment, "GPU_REBALANCER_HTTP__PORT": str(port)})
        self._parts.append(part)
        part.start()
        url = f"http://127.0.0.1:{port}"
        _await(lambda: _answers(f"{url}/readyz"), part)
        return part, url

    def command(self, words: list[str], timeout: float, kind: str = "Deployment") -> str:
        """A command of ours as the pod of that kind would run it; what it says on both its streams."""
        pod = self._pod(kind)
        container = {**pod["containers"][0], "command": words}
        line, environment = self._started_as({**pod, "containers": [container]}, "command")
        ended = subprocess.run(
            line, env={**os.environ, **environment}, cwd=self._folder, capture_output=True, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, f"{words[:3]} ended with {ended.returncode}: {ended.stderr[-3000:]}"
        return ended.stdout + ended.stderr

    def hook_command(self) -> list[str]:
        """The command of the pre-delete Job."""
        words: list[str] = self._pod("Job")["containers"][0]["command"]
        return words

    def close(self) -> None:
        """No process goes on."""
        for part in self._parts:
            part.kill()
        self._keeper.close()

    def _pod(self, kind: str) -> Object:
        found: Object = next(one for one in self.objects if one["kind"] == kind)["spec"]["template"]["spec"]
        return found

    def _started_as(self, pod: Object, name: str) -> tuple[list[str], dict[str, str]]:
        """The command line and environment out here: mounts as files, the identity of the service account."""
        identity = self._control_plane.identity(self.namespace, pod["serviceAccountName"])
        container = pod["containers"][0]
        self._mount(pod)
        words = [word.replace(MOUNTED, str(self._folder)) for word in container["command"]]
        assert words[0] == "rebalancer"
        told = {one["name"]: one["value"] for one in container.get("env", ()) if one["name"] != "HOME"}
        own = {
            "GPU_REBALANCER_POLICY": str(self._folder / "policy/policy.yaml"),
            "GPU_REBALANCER_DATA_DIR": str(self._folder / f"data-{name}"),
            "GPU_REBALANCER_HTTP__HOST": "127.0.0.1",
        }
        if pod["automountServiceAccountToken"]:
            own["GPU_REBALANCER_KUBERNETES__KUBECONFIG"] = str(identity)
        return [sys.executable, "-m", "rebalancer", *words[1:]], {**told, **own}

    def _mount(self, pod: Object) -> None:
        maps = {one["metadata"]["name"]: one["data"] for one in self.objects if one["kind"] == "ConfigMap"}
        for volume in pod["volumes"]:
            data = maps.get(volume.get("configMap", {}).get("name"), {})
            for key, text in data.items():
                path = self._folder / volume["name"] / key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)

    def _apply(self, objects: list[Object]) -> None:
        """In helm's order of kinds, as rendered; the server checks every field."""
        self._control_plane.api.apply(objects, manager="helm", namespace=self.namespace)

    def _delete(self, objects: list[Object]) -> None:
        for one in objects:
            self._control_plane.api.request("DELETE", self._control_plane.api.path_of(one, self.namespace))


def _name(one: Object) -> tuple[str, str]:
    return one["kind"], one["metadata"]["name"]


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=3) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _await(true: Any, part: Part) -> None:
    deadline = time.monotonic() + READY_WITHIN
    while not true():
        assert part.runs, f"it ended{part.log_end()}"
        assert time.monotonic() < deadline, f"not ready after {READY_WITHIN:.0f} s{part.log_end()}"
        time.sleep(0.1)
