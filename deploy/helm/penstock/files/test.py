"""Asks a gateway through its Services, as `helm test` does: test.py CLIENTS_URL [ADMIN_URL].

Each line is a question and what was answered. The status is 1 if one has another answer. Certificates are not verified:
they are for the names that clients use, not for those of the Services.
"""

import http.client
import ssl
import sys
import time
from urllib.parse import urlsplit

WAIT_S = 60.0


def status(url: str, path: str) -> int:
    """The status of a GET without a key."""
    place = urlsplit(url)
    if place.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(place.netloc, timeout=10, context=context)
    else:
        connection = http.client.HTTPConnection(place.netloc, timeout=10)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})  # which every port accepts
        return connection.getresponse().status
    finally:
        connection.close()


def answers(url: str, path: str, expected: int, until: float) -> bool:
    """Whether the answer is the expected one before the time is over: a pod may just be starting."""
    while True:
        try:
            found: object = status(url, path)
        except (OSError, http.client.HTTPException) as error:
            found = error
        if found == expected or time.monotonic() > until:
            sys.stdout.write(f"{'ok' if found == expected else 'WRONG':<6} {url}{path}: {found}, expected {expected}\n")
            sys.stdout.flush()
            return found == expected
        time.sleep(1)


if __name__ == "__main__":
    QUESTIONS = [(sys.argv[1], "/readyz", 200), (sys.argv[1], "/v1/models", 401)]
    QUESTIONS += [(url, "/metrics", 401) for url in sys.argv[2:]]
    UNTIL = time.monotonic() + WAIT_S
    RESULTS = [answers(url, path, expected, UNTIL) for url, path, expected in QUESTIONS]  # each is asked and reported
    sys.exit(not all(RESULTS))
