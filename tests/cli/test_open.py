"""`penstock open`: a link to the page of the gateway that listens on this machine."""

import os
from pathlib import Path

import pytest

from penstock.gateway.config import load
from penstock.serve.admin.endpoint import ENDPOINT_FILE, open_endpoint, write_endpoint_file
from tests.cli.support import invoke


def test_a_link_is_printed_while_a_gateway_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    file = tmp_path / "penstock.toml"
    file.write_text('[admin]\nlisten = "127.0.0.1:0"\n')
    arguments = ("open", "--print", "--config", str(file))
    refused = invoke(*arguments)
    assert (refused.exit_code, "no running gateway" in refused.output) == (1, True)

    endpoint = open_endpoint(load(file, os.environ), os.environ, pytest.fail)
    assert endpoint is not None
    with endpoint.socket:
        write_endpoint_file(endpoint, tmp_path / "state", "http://127.0.0.1:1/v1")
        assert (tmp_path / "state" / ENDPOINT_FILE).stat().st_mode & 0o777 == 0o600
        printed = invoke(*arguments)
        assert printed.output.startswith(f"http://{endpoint.address}/open?link=")
    refused = invoke(*arguments)
    assert (refused.exit_code, "no running gateway" in refused.output) == (1, True)
