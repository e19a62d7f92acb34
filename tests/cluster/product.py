"""The product as people start it: `rebalancer run --config FILE`, one process or several, ended as a platform would.

Settings and policy are files in the product's folder; its log is one of ours, so that a failing story can show its
end. Nothing here knows what a story is about.
"""

import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.error import URLError
from urllib.request import urlopen

import yaml

from tests.servers.ports import free_ports
from tests.servers.processes import Keeper, Part

ENDS_WITHIN = 20.0  # seconds after SIGTERM; a Deployment gives 30 before it kills
READY_WITHIN = 90.0  # seconds; 8 on a quiet machine
POLL = 0.1
LEASE: Mapping[str, Any] = {"duration": 3, "renew": 2, "retry": 0.5}
"""Seconds: as the defaults of 15/10/2, pressed together."""
TAIL = 40  # lines of a log in a message


@dataclass(frozen=True, slots=True)
class Place:
    """Where a product runs: its files, the brokers, the API server it sees, who it is there, its utilisation."""

    folder: Path
    cluster: str
    kafka: str
    kubeconfig: Path
    namespace: str
    prometheus: str
    lease: Mapping[str, Any] = field(default_factory=lambda: LEASE)
    every: float = 1.0
    """Seconds between two looks at the GPUs; the product's own default is 15."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further settings, over everything else."""

    def settings(self, port: int) -> dict[str, Any]:
        """The settings file of one process."""
        return {
            "cluster": self.cluster,
            "kafka": {"bootstrap": self.kafka, "timeout": 20},
            "policy": str(self.folder / "policy.yaml"),
            "kubernetes": {"kubeconfig": str(self.kubeconfig), "namespace": self.namespace},
            "dcgm": {"source": "prometheus", "url": self.prometheus, "every": self.every, "timeout": 3},
            "lease": dict(self.lease),
            "http": {"host": "127.0.0.1", "port": port},
            "log": {"format": "json", "level": "info"},
            "data_dir": str(self.folder / "data"),
            **self.extra,
        }


class Replica:
    """One process of the product."""

    def __init__(self, place: Place, name: str, keeper: Keeper, roles: str = "") -> None:
        self.name = name
        (self.port,) = free_ports(1)
        config = place.folder / f"{name}.yaml"
        config.write_text(yaml.safe_dump(place.settings(self.port), sort_keys=False))
        command = [sys.executable, "-m", "rebalancer", "run", "--config", str(config)]
        command += ["--roles", roles] if roles else []
        self.part = Part(name, command, place.folder, keeper, {})

    def page(self, path: str, within: float = 5.0) -> str:
        """What it answers over HTTP; raises OSError, also for statuses that are no success."""
        with urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=within) as answer:
            text: str = answer.read().decode()
        return text

    @property
    def ready(self) -> bool:
        """Whether `/readyz` says so."""
        try:
            return bool(self.page("/readyz"))
        except (URLError, OSError):
            return False

    def await_ready(self, within: float = READY_WITHIN) -> None:
        """Wait for it; raises AssertionError with the end of its log."""
        deadline = time.monotonic() + within
        while not self.ready:
            assert self.part.runs, f"{self.name} ended\n{self.tail()}"
            assert time.monotonic() < deadline, f"{self.name} is not ready after {within:.0f} s\n{self.tail()}"
            time.sleep(POLL)

    def end(self) -> int:
        """SIGTERM, as a Deployment does it; its exit code."""
        try:
            return self.part.end(ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.part.kill()
            raise AssertionError(f"{self.name}: no end within {ENDS_WITHIN:.0f} s\n{self.tail()}") from None

    def log(self) -> str:
        """All that it has logged."""
        return self.part.log_file.read_text(errors="replace") if self.part.log_file.exists() else ""

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(line[:600] for line in self.log().splitlines()[-TAIL:])


class Product:
    """All processes of one installation, gone when its context is left."""

    def __init__(self, place: Place, policy: str) -> None:
        self.place = place
        place.folder.mkdir(parents=True, exist_ok=True)
        self.adopt(policy)
        self.replicas: dict[str, Replica] = {}
        self._keeper = Keeper()

    def start(self, name: str = "one", roles: str = "", *, wait: bool = True) -> Replica:
        """One more process with these roles (all if none is named); the same name again starts it anew."""
        replica = self.replicas.get(name) or Replica(self.place, name, self._keeper, roles)
        self.replicas[name] = replica
        replica.part.start()
        if wait:
            replica.await_ready()
        return replica

    def adopt(self, policy: str) -> None:
        """Another policy file: the product looks at it every ten seconds."""
        (self.place.folder / "policy.yaml").write_text(policy)

    def tails(self) -> str:
        """The ends of all logs, for a message."""
        return "\n".join(f"--- {name}\n{replica.tail()}" for name, replica in self.replicas.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        for replica in self.replicas.values():
            replica.part.kill()
        self._keeper.close()
