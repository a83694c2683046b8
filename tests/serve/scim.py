"""A client over SCIM, as an identity provider is one."""

import json
from typing import Any
from urllib.parse import quote

from tests.serve.support import AdminClient

SCIM = "/admin/scim/v2"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"
PATCH = "urn:ietf:params:scim:api:messages:2.0:PatchOp"
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


class Provisioner:
    """An identity provider, with a token of its own."""

    def __init__(self, client: AdminClient, name: str) -> None:
        status, _ = client.ask("POST", "/admin/tokens", {"name": name, "role": "provisioner", "expires": "365d"})
        assert status == 201
        self.client = client
        self.token = client.secrets[-1]

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/scim+json; charset=utf-8"}
        content = json.dumps(body).encode() if body is not None else None
        status, reported, received = self.client.send(method, f"{SCIM}{path}", content, headers)
        if status != 204:
            assert received["content-type"] == "application/scim+json"
        return status, reported

    def get(self, path: str) -> Any:
        status, reported = self.ask("GET", path)
        assert status == 200, reported
        return reported

    def find(self, kind: str, condition: str, more: str = "") -> Any:
        return self.get(f"/{kind}?filter={quote(condition)}{more}")

    def create(self, kind: str, **attributes: Any) -> Any:
        schema = USER if kind == "Users" else GROUP
        status, made = self.ask("POST", f"/{kind}", {"schemas": [schema], **attributes})
        assert status == 201, made
        return made

    def patch(self, path: str, *operations: dict[str, Any]) -> Any:
        status, changed = self.ask("PATCH", path, {"schemas": [PATCH], "Operations": list(operations)})
        assert status == 200, changed
        return changed
