"""The capture of a call over the admin API: who gets it, that each look is recorded, and what is said without one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.capture import parse
from tests.faults.case import error
from tests.faults.client import body, post
from tests.faults.gateway import PROVIDER_KEY, SPARE_KEY, Gateway, settings
from tests.faults.scripts import HELLO
from tests.faults.upstream import Upstream, chunk, head, last_chunk
from tests.serve.support import AdminClient
from tests.streams import DONE, finishes, sse

pytestmark = pytest.mark.slow


@contextmanager
def recording(folder: Path, to: Path, *, content: bool) -> Iterator[Gateway]:
    """A gateway that records."""
    with Upstream() as upstream:
        configuration = settings(upstream.url, 2, admin={"content": content})
        with Gateway(folder, upstream, configuration, arguments=("--record", str(to))) as gateway:
            yield gateway


def call(gateway: Gateway) -> str:
    """A call whose first attempt fails; returns its id when both captures are complete."""
    pair = gateway.pair(error(500), [head(), chunk(HELLO), chunk(sse(finishes(), DONE)), last_chunk()])
    with gateway.client() as client:
        client.send(post(body(pair, stream=True)))
        response = client.response()
    assert response.status == 200
    return response.headers["x-request-id"]


def captures(folder: Path, id: str) -> dict[int, Path]:
    """The complete captures of a call, by attempt."""
    found = {int(path.stem.rpartition("-")[2]): path for path in folder.glob(f"*-{id}-*.capture")}
    return {number: path for number, path in found.items() if parse(path.read_bytes()).closing is not None}


def test_a_capture_is_shown_to_operators_and_each_look_is_recorded(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    with recording(tmp_path, folder, content=True) as gateway:
        check_looks(gateway, folder)


def check_looks(gateway: Gateway, folder: Path) -> None:
    admin = AdminClient(gateway)
    assert admin.get("/admin/state")["recording"] is True
    id = call(gateway)
    gateway.until(lambda: len(captures(folder, id)) == 2)
    tokens = {}
    for role in ("viewer", "operator"):
        assert admin.ask("POST", "/admin/tokens", {"name": role, "role": role})[0] == 201
        tokens[role] = {"Authorization": f"Bearer {admin.secrets[-1]}"}
    path = f"/admin/calls/{id}/capture"
    for number, (query, provider) in enumerate((("", "main"), ("?attempt=2", "spare")), 1):
        status, headers, content = admin.download(f"{path}{query}", tokens["operator"])
        assert (status, content) == (200, captures(folder, id)[number].read_bytes())
        header = parse(content).header
        assert (header.call, header.attempt, header.provider) == (id, number, provider)
        assert re.fullmatch(rf'attachment; filename="\S+-{id}-{number}\.capture"', headers["content-disposition"])
        assert not any(key.encode() in content for key in (PROVIDER_KEY, SPARE_KEY))
    assert admin.download(path, tokens["viewer"])[0] == 403
    looks = admin.get("/admin/audit?action=content&who=token:operator")["entries"]
    assert [(look["action"], look["subject"]) for look in looks] == [("content.capture", id)] * 2
    gateway.says(f"the kept content of the call {id} was read")

    captures(folder, id)[1].unlink()
    for missing in (path, f"{path}?attempt=3", "/admin/calls/req_unknown/capture", "/admin/calls/..%2F..%2Fx/capture"):
        status, reported = admin.ask("GET", missing)
        assert (status, reported["error"]["code"]) == (404, "capture_not_kept")
        assert "captures are kept for 30 days" in reported["error"]["message"]
    assert admin.ask("GET", f"{path}?attempt=x")[0] == 400


def test_a_gateway_that_shows_no_content_shows_no_capture(tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    with recording(tmp_path, folder, content=False) as gateway:
        id = call(gateway)
        gateway.until(lambda: len(captures(folder, id)) == 2)
        status, reported = AdminClient(gateway).ask("GET", f"/admin/calls/{id}/capture")
    assert (status, reported["error"]["code"]) == (403, "content_not_allowed")
