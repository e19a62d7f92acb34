"""The test broker's certificate and the authority that signed it, made anew for each broker."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization as pem


def write_certificates(folder: Path) -> tuple[Path, Path]:
    """Make an authority and the broker's certificate.

    Returns:
        Paths of the authority's PEM and of the broker's key and chain in one PEM, as Kafka wants it (PKCS 8).
    """
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", "localhost")
    key = pem.load_pem_private_key(issued.private_key_pem.bytes(), password=None)
    pkcs8 = key.private_bytes(pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.NoEncryption())
    ca_file, key_store = folder / "ca.pem", folder / "broker.pem"
    authority.cert_pem.write_to_path(str(ca_file))
    key_store.write_bytes(pkcs8 + b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    return ca_file, key_store
