"""Signatures of a release: with an SSH key, or with an identity through Sigstore, which needs the package `sigstore`.

Two things are signed. The checksums get a detached signature. The attestation, an in-toto statement, gets an envelope
(DSSE).

| | checksums | attestation |
|---|---|---|
| SSH | `SHA256SUMS.sig`, which `ssh-keygen -Y verify` reads | a DSSE envelope, whose signature is in the same form |
| Sigstore | `SHA256SUMS.sigstore.json`, a bundle | a bundle, in which the envelope is |

Verification uses no network: an SSH key is checked against a file of allowed signers, a bundle against the trusted root
that the package `sigstore` brings, or another one.
"""

import base64
import json
import subprocess
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

NAMESPACE = "penstock-release"
"""What a signature is for: one that the same key made of something else, such as a commit, does not verify."""
PAYLOAD_TYPE = "application/vnd.in-toto+json"
SIGSTORE = "verifying and making Sigstore bundles needs the package sigstore: python3 -m pip install sigstore"


class SignatureInvalid(Exception):
    """A signature is not one of a trusted signer, or it cannot be checked."""


class Signer(Protocol):
    """Signs a release."""

    checksums_suffix: str
    attestation_suffix: str

    def sign(self, data: bytes) -> bytes:
        """The content of a detached signature."""

    def attest(self, statement: bytes) -> bytes:
        """The statement in a signed envelope."""

    def trust(self) -> "Trust":
        """What accepts the signatures of this signer."""


class Trust(Protocol):
    """The signers that are trusted. Both methods raise `SignatureInvalid`."""

    checksums_suffix: str
    attestation_suffix: str

    def verify(self, data: bytes, signature: bytes) -> str:
        """Verify a detached signature. Returns who signed."""

    def open(self, envelope: bytes) -> tuple[bytes, str]:
        """Verify an envelope. Returns the statement, and who signed."""


class SshTrust:
    """The signers of a file in the form of OpenSSH's allowed signers."""

    checksums_suffix = ".sig"
    attestation_suffix = ".intoto.jsonl"

    def __init__(self, allowed_signers: Path) -> None:
        self._file = allowed_signers
        if not allowed_signers.is_file():
            raise SignatureInvalid(
                f"there is no {allowed_signers}, so no signer is trusted: pass --signers FILE, from a source that "
                "you trust, with a line for each signer: NAME ssh-ed25519 AAAA…"
            )

    def verify(self, data: bytes, signature: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "signature"
            file.write_bytes(signature)
            found = _ssh_keygen("find-principals", "-s", str(file), "-f", str(self._file))
            if found.returncode:
                raise SignatureInvalid(f"the key is not one of {self._file}, or this is no signature")
            signer = found.stdout.decode().split("\n", 1)[0]
            options = ("-I", signer, "-n", NAMESPACE, "-s", str(file), "-f", str(self._file))
            if _ssh_keygen("verify", *options, data=data).returncode:
                raise SignatureInvalid(f"the signature of {signer} is not one of this content")
        return f"{signer} (SSH)"

    def open(self, envelope: bytes) -> tuple[bytes, str]:
        try:
            content = json.loads(envelope)
            statement = base64.b64decode(content["payload"], validate=True)
            (signature,) = content["signatures"]
            blob = base64.b64decode(signature["sig"], validate=True)
            if content["payloadType"] != PAYLOAD_TYPE:
                raise SignatureInvalid(f"the envelope has {content['payloadType']!r}, not {PAYLOAD_TYPE}")
        except (ValueError, KeyError, TypeError) as error:
            raise SignatureInvalid(f"this is no envelope with one signature: {error!r}") from None
        return statement, self.verify(to_sign(statement), _armored(blob))


class SshSigner:
    """Signs with a key of SSH: a private key, or a public one whose private part an agent or a security key has."""

    checksums_suffix = SshTrust.checksums_suffix
    attestation_suffix = SshTrust.attestation_suffix

    def __init__(self, key: Path, allowed_signers: Path) -> None:
        self.key = key
        self._allowed = allowed_signers

    def sign(self, data: bytes) -> bytes:
        done = _ssh_keygen("sign", "-n", NAMESPACE, "-f", str(self.key), data=data)
        if done.returncode:
            raise SignatureInvalid(f"ssh-keygen cannot sign with {self.key}: {done.stderr.decode().strip()}")
        return done.stdout

    def attest(self, statement: bytes) -> bytes:
        fingerprint = subprocess.run(["ssh-keygen", "-lf", self.key], check=True, capture_output=True, text=True)
        signature = {"keyid": fingerprint.stdout.split()[1], "sig": _blob(self.sign(to_sign(statement)))}
        envelope = {
            "payloadType": PAYLOAD_TYPE,
            "payload": base64.b64encode(statement).decode(),
            "signatures": [signature],
        }
        return json.dumps(envelope).encode() + b"\n"

    def trust(self) -> SshTrust:
        return SshTrust(self._allowed)


class SigstoreTrust:
    """An identity, and the issuer that vouches for it, as Sigstore's certificates have them."""

    checksums_suffix = ".sigstore.json"
    attestation_suffix = ".intoto.sigstore.json"

    def __init__(self, identity: str, issuer: str, trusted_root: Path | None = None) -> None:
        self._identity = identity
        self._issuer = issuer
        self._root = trusted_root

    def verify(self, data: bytes, signature: bytes) -> str:
        self._checked(lambda verifier, bundle, policy: verifier.verify_artifact(data, bundle, policy), signature)
        return f"{self._identity} (Sigstore)"

    def open(self, envelope: bytes) -> tuple[bytes, str]:
        kind, statement = self._checked(lambda verifier, bundle, policy: verifier.verify_dsse(bundle, policy), envelope)
        if kind != PAYLOAD_TYPE:
            raise SignatureInvalid(f"the envelope has {kind!r}, not {PAYLOAD_TYPE}")
        return statement, f"{self._identity} (Sigstore)"

    def _checked(self, check: Callable[[Any, Any, Any], Any], bundle: bytes) -> Any:
        try:
            from sigstore.errors import Error  # noqa: PLC0415 - an optional package
            from sigstore.models import Bundle, TrustedRoot  # noqa: PLC0415
            from sigstore.verify import Verifier  # noqa: PLC0415
            from sigstore.verify.policy import Identity  # noqa: PLC0415
        except ImportError:
            raise SignatureInvalid(SIGSTORE) from None
        try:
            verifier = (
                Verifier(trusted_root=TrustedRoot.from_file(str(self._root)))
                if self._root
                else Verifier.production(offline=True)
            )
            return check(verifier, Bundle.from_json(bundle), Identity(identity=self._identity, issuer=self._issuer))
        except (Error, ValueError) as error:
            raise SignatureInvalid(f"Sigstore: {error}") from None


class SigstoreSigner:
    """Signs as the identity that the environment has, such as a job of continuous integration. Needs the network.

    The identity and the checksums become public: they are in Sigstore's log.
    """

    checksums_suffix = SigstoreTrust.checksums_suffix
    attestation_suffix = SigstoreTrust.attestation_suffix

    def __init__(self) -> None:
        try:
            from sigstore.models import ClientTrustConfig  # noqa: PLC0415 - an optional package
            from sigstore.oidc import IdentityToken, detect_credential  # noqa: PLC0415
            from sigstore.sign import SigningContext  # noqa: PLC0415
        except ImportError:
            raise SignatureInvalid(SIGSTORE) from None
        credential = detect_credential()
        if credential is None:
            raise SignatureInvalid("this environment has no identity for Sigstore: sign with an SSH key, --key FILE")
        self._token = IdentityToken(credential)
        self._context = SigningContext.from_trust_config(ClientTrustConfig.production())

    def sign(self, data: bytes) -> bytes:
        with self._context.signer(self._token) as signer:
            return str(signer.sign_artifact(data).to_json()).encode() + b"\n"

    def attest(self, statement: bytes) -> bytes:
        from sigstore.dsse import Statement  # noqa: PLC0415

        with self._context.signer(self._token) as signer:
            return str(signer.sign_dsse(Statement(statement)).to_json()).encode() + b"\n"

    def trust(self) -> SigstoreTrust:
        return SigstoreTrust(self._token.identity, self._token.federated_issuer)


def to_sign(statement: bytes) -> bytes:
    """The bytes that the signature of an envelope is of: DSSE's pre-authentication encoding."""
    return f"DSSEv1 {len(PAYLOAD_TYPE)} {PAYLOAD_TYPE} {len(statement)} ".encode() + statement


def _ssh_keygen(action: str, *options: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["ssh-keygen", "-Y", action, *options], input=data, capture_output=True, check=False)


def _armored(blob: bytes) -> bytes:
    """A signature as `ssh-keygen` reads it."""
    lines = textwrap.wrap(base64.b64encode(blob).decode(), 70)
    return "\n".join(["-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""]).encode()


def _blob(armored: bytes) -> str:
    """The inner text of a signature that `ssh-keygen` wrote."""
    return "".join(armored.decode().split("\n")[1:-2])
