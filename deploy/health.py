"""The health check of the container: exits with 0 if the gateway answers, over HTTP or, with `[server.tls]`, HTTPS.

The certificate is not checked: it is for the name that clients use, and this is the same container. A gateway that asks
for a client's certificate is alive if it refuses this client after the TLS handshake.
"""

import http.client
import ssl
import sys


def status(connection: http.client.HTTPConnection) -> int:
    """The status of `/livez`; 0 if the gateway refuses an open connection. Raises if it cannot be opened."""
    connection.connect()
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status
    except (http.client.HTTPException, ssl.SSLError, ConnectionError):
        return 0
    finally:
        connection.close()


def is_alive(port: int) -> bool:
    """Whether a gateway answers on a port of this container."""
    found = status(http.client.HTTPConnection("127.0.0.1", port, timeout=1))
    if not found:  # not HTTP
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        found = status(http.client.HTTPSConnection("127.0.0.1", port, timeout=1, context=context)) or http.client.OK
    return found == http.client.OK


if __name__ == "__main__":
    try:
        sys.exit(not is_alive(int(sys.argv[1])))
    except OSError:
        sys.exit(1)
