"""Who may come to the test control plane, and how each side proves itself.

One authority signs the API server's certificate and the webhooks'; users come with tokens from a file, service
accounts with tokens that the API server signs. All of it is made anew for each control plane.
"""

import json
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization as pem
from cryptography.hazmat.primitives.asymmetric import ec

ADMIN, OUTSIDER = "admin", "outsider"
MASTERS = "system:masters"
GROUPS = {
    ADMIN: MASTERS,
    "kwok": MASTERS,
    "jobset": MASTERS,
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
    OUTSIDER: "",  # known by name, allowed nothing until a role says so
}


def token_of(user: str) -> str:
    """The bearer token of a user of GROUPS.

    Raises:
        KeyError: there is no such user; service accounts get theirs from the API server.
    """
    if user not in GROUPS:
        raise KeyError(user)
    return f"{user.replace(':', '-')}-token"


class Credentials:
    """Files in `folder`: authority, server certificate, the service accounts' key, the list of tokens."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority, self.tokens, self.accounts = folder / "ca.pem", folder / "tokens.csv", folder / "accounts.key"
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"  # the names that webhook servers look for
        self._write_certificates()
        self._write_accounts_key()
        rows = [f'{token_of(user)},{user},{user},"{group}"' for user, group in GROUPS.items()]
        self.tokens.write_text("\n".join(rows) + "\n")

    def kubeconfig(self, server: str, name: str, token: str) -> Path:
        """Write the kubeconfig `<name>.kubeconfig` for `server` with this token; clients verify the certificate."""
        path = self.folder / f"{name.replace(':', '-').replace('/', '-')}.kubeconfig"
        cluster = {"server": server, "certificate-authority": str(self.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
        }
        path.write_text(json.dumps(config, indent=1))
        path.chmod(0o600)
        return path

    def _write_certificates(self) -> None:
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
        authority.cert_pem.write_to_path(str(self.authority))
        issued.private_key_pem.write_to_path(str(self.key))
        self.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))

    def _write_accounts_key(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        blob = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.TraditionalOpenSSL, pem.NoEncryption())
        self.accounts.write_bytes(blob)
