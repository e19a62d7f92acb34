"""How a client reaches the test broker, in the words of aiokafka and of librdkafka.

Pure data, so that test processes which share one broker can tell each other by a file.
"""

import json
import ssl
from dataclasses import asdict, dataclass
from typing import Any

SUPERUSER = "admin"  # may do everything
LIMITED_USER = "limited"  # may do nothing until an ACL says so
PASSWORDS = {SUPERUSER: "admin-secret", LIMITED_USER: "limited-secret"}
SASL_MECHANISM = "SCRAM-SHA-256"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The broker's three doors (host:port) and the file of the authority that signed its certificate.

    `bootstrap` is plain text and all-powerful; `sasl` asks for a name and password; `tls` is encrypted.
    """

    bootstrap: str
    sasl: str
    tls: str
    ca_file: str

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Addresses":
        return cls(**json.loads(text))

    def client(self) -> dict[str, Any]:
        """Keyword arguments for any aiokafka client, through the plain door."""
        return {"bootstrap_servers": self.bootstrap}

    def sasl_client(self, user: str = SUPERUSER, password: str | None = None) -> dict[str, Any]:
        """As `client`, through the door that asks for a name; the password is the right one unless given."""
        return {
            "bootstrap_servers": self.sasl,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": SASL_MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": PASSWORDS[user] if password is None else password,
        }

    def tls_client(self) -> dict[str, Any]:
        """As `client`, through the encrypted door, trusting the broker's own authority only."""
        context = ssl.create_default_context(cafile=self.ca_file)
        return {"bootstrap_servers": self.tls, "security_protocol": "SSL", "ssl_context": context}
