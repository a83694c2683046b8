"""Uses a client that openapi-python-client made of our document: `use_client.py URL TOKEN`, run where `client` is.

Prints what it got, as JSON.
"""

import json
import sys
from importlib import import_module
from typing import Any

url, token = sys.argv[1:]
client: Any = import_module("client")
models: Any = import_module("client.models")
api = client.AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True)


def ask(operation: str, *path: str, body: Any = None) -> Any:
    """Ask as an operation of the client does, such as `keys.create_key`."""
    given = {} if body is None else {"body": body}
    return import_module(f"client.api.{operation}").sync(*path, client=api, **given)


got: dict[str, Any] = {}
for name in ("acme", "acme/search"):
    budgets = models.TeamTermsBudgets.from_dict({"month": 5})
    ask("teams.create_team", body=models.TeamTerms(path=name, budgets=budgets))
got["team"] = ask("teams.show_team", "acme/search").to_dict()
terms = models.KeyTerms(
    name="ci", team="acme/search", budget=2.5, end_users=models.LimitTerms(concurrent=3), models=["fast"]
)
key = ask("keys.create_key", body=terms)
got["key"] = key.to_dict() | {"secret": ""}
got["updated"] = ask("keys.update_key", key.id, body=models.KeyUpdate(budget=None, strict=True)).to_dict()
got["listed"] = [each.id for each in ask("keys.list_keys").keys] == [key.id]
got["shown"] = ask("keys.show_key", "ci") == ask("keys.update_key", "ci", body=models.KeyUpdate())
got["revoked"] = ask("keys.revoke_key", key.id).state
got["missing"] = ask("keys.show_key", "nothing").to_dict()["error"]
got["refused"] = ask("keys.create_key", body=models.KeyTerms(name="x", budget="much")).to_dict()["error"]
declared = {"managed_by": "terraform", "teams": {"acme2": {"concurrent": 4}}}
plan = ask("declared_teams_and_keys.make_plan", body=models.PlanBody.from_dict(declared))
got["plan"] = plan.to_dict()
body = models.ApplyBody.from_dict(declared | {"fingerprint": plan.fingerprint})
got["applied"] = ask("declared_teams_and_keys.carry_out_plan", body=body) == plan
got["deleted"] = ask("teams.delete_team", "acme/search").to_dict()
viewer = models.TokenTerms.from_dict({"name": "reader", "role": "viewer"})
got["token"] = ask("users_and_the_audit_log.create_token", body=viewer).role
got["audit"] = [each.action for each in ask("users_and_the_audit_log.list_audit").entries]
got["user"] = ask("users_and_the_audit_log.show_user").role
got["usage"] = ask("usage_and_entries.usage").usage[0].calls
got["entries"] = ask("usage_and_entries.list_entries").entries
got["version"] = ask("the_gateway.show_state").version
sys.stdout.write(json.dumps(got))
