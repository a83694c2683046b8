"""A gateway with the configuration that the chart renders for a company: rotated secrets, and what `helm test` asks."""

import http.client
import json
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from tests.deploy.chart import configuration, environment, needs_helm, one, rendered
from tests.faults.gateway import Gateway
from tests.faults.scripts import whole
from tests.faults.upstream import Upstream

pytestmark = [pytest.mark.slow, needs_helm]

MODEL = "gpt-5-mini"  # of the provider openai, in the route `fast`
_WAIT_S = 60.0
_ADMIN = re.compile(r"(http://127\.0\.0\.1:\d+)/admin for")


class Volume:
    """A volume as the kubelet and the Secrets Store CSI driver write it.

    `..data` links to a folder, and each file to `..data/FILE`.
    """

    def __init__(self, folder: Path, files: dict[str, bytes]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._number = 0
        for name in files:
            (folder / name).symlink_to(f"..data/{name}")
        self.write(files)

    def write(self, files: dict[str, bytes]) -> None:
        """Replace all files in one step."""
        self._number += 1
        content = self._folder / f"..{self._number}"
        content.mkdir()
        for name, data in files.items():
            (content / name).write_bytes(data)
        (self._folder / "..new").symlink_to(content.name)
        (self._folder / "..new").rename(self._folder / "..data")


def _reachable(variables: dict[str, str]) -> dict[str, str]:
    """Variables of the pod without those that name its files."""
    return {name: value for name, value in variables.items() if not value.startswith("/run/")}


class Company:
    """The gateway, the secrets that it reads, and its certificates."""

    def __init__(self, folder: Path, upstream: Upstream) -> None:
        objects = rendered("company")
        self._authority = trustme.CA()
        self.secrets = {
            name: f"{name}-number-1-{'x' * 16}".encode()
            for name in ("openai", "anthropic", "client-key", "admin-token", "oidc-client-secret")
        }
        self.vault = Volume(folder / "vault", self.secrets)
        self.tls = Volume(folder / "tls", self.certificate())
        text = configuration(objects, folder)
        text = re.sub(r"(?m)^(postgres|redis) = .*\n", "", text)  # the ledger of one gateway
        text = text.replace('[admin]\nlisten = "0.0.0.0:8081"', '[admin]\nlisten = "127.0.0.1:0"')
        text = text.replace("[providers.openai]\n", f'[providers.openai]\nbase_url = "{upstream.url}"\n')
        self.gateway = Gateway(folder, upstream, text, environment=_reachable(environment(objects)))

    def certificate(self) -> dict[str, bytes]:
        issued = self._authority.issue_cert("llm.example.com", "127.0.0.1")
        chain = b"".join(part.bytes() for part in issued.cert_chain_pems)
        return {"tls.crt": chain, "tls.key": issued.private_key_pem.bytes()}

    def presented(self) -> str:
        """The certificate that clients see."""
        return ssl.get_server_certificate(("127.0.0.1", self.gateway.port))

    def ask(self, key: bytes = b"") -> int:
        """The status of a call of the route `fast`, over TLS, with a client's key: without one, that of the volume."""
        context = ssl.create_default_context()
        self._authority.configure_trust(context)
        connection = http.client.HTTPSConnection("127.0.0.1", self.gateway.port, timeout=_WAIT_S, context=context)
        try:
            content = json.dumps({"model": "fast", "messages": [{"role": "user", "content": "Hello"}]})
            headers = {"authorization": f"Bearer {(key or self.secrets['client-key']).decode()}"}
            connection.request("POST", "/v1/chat/completions", content, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def sent_key(self) -> str:
        """The key in the provider's newest request."""
        found = re.search(rb"(?i)authorization: Bearer (\S+)", self.gateway.upstream.requests(MODEL)[-1])
        assert found
        return found[1].decode()

    def until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _WAIT_S
        while not true():
            assert time.monotonic() < deadline
            time.sleep(0.2)


@pytest.fixture(scope="module")
def company(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Company]:
    with Upstream() as upstream:
        upstream.play(whole(), MODEL)
        company = Company(tmp_path_factory.mktemp("company"), upstream)
        with company.gateway:
            yield company


@pytest.fixture(scope="module")
def old(company: Company) -> dict[str, bytes]:
    """The secrets before Vault and cert-manager wrote others, while clients called: none of their calls failed."""
    old = company.secrets
    assert company.ask(old["client-key"]) == 200
    assert company.sent_key() == old["openai"].decode()
    company.secrets = {
        **old,
        "openai": b"openai-number-2-" + 16 * b"y",
        "client-key": b"client-key-number-2-" + 16 * b"y",
    }
    certificate = company.certificate()
    company.tls.write(certificate)
    company.vault.write(company.secrets)

    def all_are_used() -> bool:
        with_old, with_new = company.ask(old["client-key"]), company.ask()
        assert 200 in (with_old, with_new)
        return with_new == 200 and company.presented() in certificate["tls.crt"].decode()

    company.until(all_are_used)
    return old


def test_a_rotated_secret_is_used_and_the_old_one_no_more(company: Company, old: dict[str, bytes]) -> None:
    before = len(company.gateway.upstream.requests(MODEL))
    assert [company.ask() for _ in range(5)] == 5 * [200]
    later = company.gateway.upstream.requests(MODEL)[before:]
    assert len(later) == 5
    assert all(company.secrets["openai"] in request for request in later)
    assert not any(old["openai"] in request for request in later)


def test_a_rotated_key_of_clients_ends(company: Company, old: dict[str, bytes]) -> None:
    assert company.ask(old["client-key"]) == 401


def test_the_gateway_did_not_restart_and_wrote_no_secret(company: Company, old: dict[str, bytes]) -> None:
    output = "".join(company.gateway.output)
    assert output.count("penstock listens on https://") == 1
    assert not any(secret.decode() in output for secret in (*old.values(), *company.secrets.values()))


def test_helm_test_finds_the_gateway_well(company: Company) -> None:
    (container,) = one(rendered("company"), "Pod")["spec"]["containers"]
    code, clients, admin = container["args"]
    assert clients == "https://gateway-penstock.llm.svc:443"
    assert admin == "http://gateway-penstock-admin.llm.svc:8081"
    found = _ADMIN.search("".join(company.gateway.output))
    assert found
    places = [f"https://127.0.0.1:{company.gateway.port}", found[1]]
    done = subprocess.run([sys.executable, "-c", code, *places], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("ok "), done.stderr) == (0, 3, "")


def test_helm_test_fails_where_no_gateway_is(company: Company) -> None:
    (container,) = one(rendered("company"), "Pod")["spec"]["containers"]
    code = container["args"][0].replace("WAIT_S = 60.0", "WAIT_S = 0.0")
    place = company.gateway.upstream.url.removesuffix("/v1")
    done = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "WRONG" in done.stdout
