"""A real Kubernetes control plane for the tests: etcd, API server, controller manager, scheduler, and kwok.

One per test process, on ports and in a folder of its own; every part can be stopped, started, paused and
killed while the others run. RBAC is on, certificates are verified, service accounts are real, and what an
identity under test asked is in an audit log. Nodes and the pods on them are kwok's: nothing runs in them.
It must never outlive the test process, however that ends.
"""

import contextlib
import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers import jobset, parts
from tests.servers.adminclient import AdminClient, ApiError
from tests.servers.audit import Call, calls_of
from tests.servers.credentials import ADMIN, Credentials, token_of
from tests.servers.parts import NodeFailure, Plan, Ports
from tests.servers.ports import free_ports
from tests.servers.processes import Keeper, Part, PartError

READY_WITHIN = 90.0  # seconds; 3-6 on idle cores
TOKEN_SECONDS = 7200  # longer than any run of the tests
ORDER = ("etcd", "apiserver", "controller-manager", "scheduler", "kwok")
JOBSET = "jobset"  # started only when asked for: most tests need no JobSets


class ControlPlane:
    """The control plane in `folder`; started by `start_all()` or as a context manager.

    Args:
        folder: where data, logs and credentials go.
        failure: how fast silent nodes are noticed.
        gangs: turn on native PodGroups (feature gate GenericWorkload and its API).
        gates, apis: further feature gates (`Name=true`) and API versions (`group/version=true`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        failure: NodeFailure | None = None,
        gangs: bool = False,
        gates: Sequence[str] = (),
        apis: Sequence[str] = (),
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._credentials = Credentials(folder / "credentials")
        native = (parts.GANG_GATES, parts.GANG_APIS) if gangs else ((), ())
        self.plan = Plan(
            folder, Ports(*free_ports(5)), failure or NodeFailure(), (*native[0], *gates), (*native[1], *apis)
        )
        self.url = self.plan.url
        self.authority = self._credentials.authority
        self._clients: list[AdminClient] = []
        self.api = self._client(token_of(ADMIN))
        self._keeper = Keeper()
        self._parts: dict[str, Part] = {}
        self._add_all()

    # --- whole ------------------------------------------------------------------------------------------------------

    def start_all(self) -> Self:
        """Start every part and return once pods would be scheduled and run.

        Raises:
            PartError, TimeoutError: a part ended or did not answer within READY_WITHIN seconds.
        """
        try:
            for name in ORDER:
                self.start(name)
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self.api.wait(lambda: self.api.exists(account), READY_WITHIN, "the default service account")
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Kill every part; the folder stays, for whoever wants to read its logs."""
        for part in reversed(self._parts.values()):
            part.kill()
        for client in self._clients:
            client.close()
        self._keeper.close()

    def __enter__(self) -> Self:
        return self.start_all()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    # --- parts ------------------------------------------------------------------------------------------------------

    def add_part(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """Register another program (a descheduler, say) under the same care; `start(name)` starts it."""
        self._parts[name] = Part(name, command, self.folder, self._keeper, environment or {})

    def start(self, part: str) -> None:
        """Start a part and wait until it answers; one that runs already is an error."""
        if part == JOBSET:
            self._prepare_jobset()
        self._parts[part].start()
        if part == "apiserver":
            for client in self._clients:
                client.new_era()
        self._await_ready(part)

    def stop(self, part: str) -> None:
        """Kill a part (SIGKILL): as when its machine dies. What it stored stays."""
        self._parts[part].kill()

    def restart(self, part: str) -> None:
        self.stop(part)
        self.start(part)

    def pause(self, part: str) -> None:
        """SIGSTOP: its connections stay open and nobody answers."""
        self._parts[part].pause()

    def resume(self, part: str) -> None:
        self._parts[part].resume()

    def part(self, name: str) -> Part:
        """The part itself: its pid, its log."""
        return self._parts[name]

    def ensure_jobset(self) -> None:
        """Start the JobSet controller with its CRD and webhooks unless it runs."""
        if JOBSET not in self._parts or not self._parts[JOBSET].runs:
            self.start(JOBSET)

    def compact(self) -> None:
        """Forget the past: a watch from any resource version known until now is answered 410.

        Compacts etcd and restarts the API server, whose watch cache would remember.
        """
        revision = self._etcd("/v3/maintenance/status", {})["header"]["revision"]
        self._etcd("/v3/kv/compaction", {"revision": revision, "physical": True})
        self.restart("apiserver")

    # --- identities -------------------------------------------------------------------------------------------------

    def token(self, user: str = ADMIN) -> str:
        return token_of(user)

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """A kubeconfig of one of the named users: `admin` may do everything, `outsider` nothing yet."""
        return self._credentials.kubeconfig(self.url, user, token_of(user))

    def identity(self, namespace: str, account: str) -> Path:
        """A kubeconfig of a service account, which is made if it is not there, with a token from TokenRequest."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        with contextlib.suppress(ApiError):  # 409: it is there; anything else fails at the next call
            self.api.post(path, {"metadata": {"name": account}})
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        told = self.api.post(f"{path}/{account}/token", {**asked, "spec": {"expirationSeconds": TOKEN_SECONDS}})
        return self._credentials.kubeconfig(self.url, f"{namespace}:{account}", told["status"]["token"])

    def client(self, kubeconfig: Path) -> AdminClient:
        """The same small client with the token of a kubeconfig that this control plane wrote."""
        return self._client(json.loads(kubeconfig.read_text())["users"][0]["user"]["token"])

    def audit(self, user: str) -> list[Call]:
        """What a service account (`namespace:name`) or the outsider asked so far, in order."""
        full = f"system:serviceaccount:{user}" if ":" in user and not user.startswith("system:") else user
        return calls_of(self.plan.audit_log, full)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _client(self, token: str) -> AdminClient:
        """One that is closed with the rest."""
        made = AdminClient(self.url, self.authority, token)
        self._clients.append(made)
        return made

    def _add_all(self) -> None:
        plan, credentials = self.plan, self._credentials

        def config(user: str) -> Path:
            return self.kubeconfig(user)

        self.add_part("etcd", parts.etcd(plan))
        self.add_part("apiserver", parts.apiserver(plan, credentials))
        manager = parts.controller_manager(plan, credentials, config("system:kube-controller-manager"))
        self.add_part("controller-manager", manager)
        self.add_part("scheduler", parts.scheduler(plan, config("system:kube-scheduler")))
        self.add_part("kwok", parts.kwok(plan, config("kwok")))

    def _prepare_jobset(self) -> None:
        if JOBSET not in self._parts:
            self.add_part(JOBSET, parts.jobset(self.plan, self._credentials, self.kubeconfig("jobset")))
        jobset.install(self.api, self.authority, self.plan.ports.jobset_webhook)

    def _await_ready(self, name: str) -> None:
        ready = {"etcd": self._etcd_healthy, "apiserver": self._apiserver_ready, JOBSET: self._jobset_ready}.get(name)
        part = self._parts[name]
        deadline = time.monotonic() + READY_WITHIN
        while ready is not None and not ready():
            if not part.runs:
                raise PartError(f"{name} ended while starting{part.log_end()}")
            if time.monotonic() > deadline:
                raise PartError(f"{name}: no answer within {READY_WITHIN:.0f} s{part.log_end()}")
            time.sleep(0.03)

    def _etcd_healthy(self) -> bool:
        try:
            return bool(self._etcd("/v3/maintenance/status", {}))
        except OSError:
            return False

    def _apiserver_ready(self) -> bool:
        try:
            return self.api.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def _jobset_ready(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.plan.ports.jobset_health}/readyz", timeout=2
            ) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _etcd(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        asked = urllib.request.Request(self.plan.etcd_url + path, json.dumps(body).encode())
        with urllib.request.urlopen(asked, timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
        return found
