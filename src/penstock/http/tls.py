"""TLS of a listener. Its certificate is loaded again when its files change, so that a renewal needs no restart."""

import ssl

from penstock.http.file_version import FileVersion, file_version


class ListenerTls:
    """The TLS context of a listener, from files in PEM format. With `client_ca`, clients need a certificate of it."""

    def __init__(self, certificate: str, key: str, client_ca: str = "") -> None:
        """Raises `OSError` (`ssl.SSLError` is one) if the files cannot be used."""
        self._certificate = certificate
        self._key = key
        self._loaded = self._versions()
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca or None)
        self._load(self.context)
        if client_ca:
            self.context.verify_mode = ssl.CERT_REQUIRED

    def refresh(self) -> bool:
        """Load the certificate again if its files have changed; open connections keep theirs.

        Returns whether they have changed. Raises `OSError` once for each change that cannot be used: then new
        connections get the old certificate.
        """
        versions = self._versions()
        if versions == self._loaded:
            return False
        self._loaded = versions
        # First into another context: a certificate that does not belong to the key would replace the old one.
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)
        return True

    def _load(self, context: ssl.SSLContext) -> None:
        for path in (self._certificate, self._key):
            open(path, "rb").close()  # the error of a file that cannot be read has its name, OpenSSL's has not
        context.load_cert_chain(self._certificate, self._key, _no_password)

    def _versions(self) -> list[FileVersion | None]:
        return [file_version(path) for path in (self._certificate, self._key)]


def _no_password() -> str:
    """Called for an encrypted key. Without this, OpenSSL would ask on the terminal."""
    return ""
