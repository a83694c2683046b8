"""Certificates in files, as a listener reads them."""

from pathlib import Path

import trustme


def write_certificate(issued: trustme.LeafCert, folder: Path) -> tuple[str, str]:
    """Write a certificate with its chain, and its key; returns the paths of both."""
    certificate, key = folder / "chain.pem", folder / "key.pem"
    certificate.write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return str(certificate), str(key)
