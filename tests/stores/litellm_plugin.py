"""Run by LiteLLM's proxy: authenticates keys and books spending in its PostgreSQL, in place of its Prisma client.

The engine of that client is not on the Python Package Index, so the rehearsal does without it. LiteLLM's own code
hashes the key and computes each cost. The statements below are ours, on LiteLLM's own tables: the ones that it updates.
"""

import os
from typing import Any

import psycopg  # type: ignore[import-not-found]
from litellm.integrations.custom_logger import CustomLogger  # type: ignore[import-not-found]
from litellm.proxy._types import UserAPIKeyAuth  # type: ignore[import-not-found]
from litellm.proxy.utils import hash_token  # type: ignore[import-not-found]

_KEY = """
SELECT v.token, v.key_alias, v.spend, v.max_budget, v.team_id, t.organization_id, t.spend >= t.max_budget
FROM "LiteLLM_VerificationToken" v LEFT JOIN "LiteLLM_TeamTable" t USING (team_id)
WHERE v.token = %s AND v.blocked IS NOT TRUE"""
_BOOK = (
    'UPDATE "LiteLLM_VerificationToken" SET spend = spend + %s WHERE token = %s',
    'UPDATE "LiteLLM_TeamTable" SET spend = spend + %s WHERE team_id = %s',
    'UPDATE "LiteLLM_OrganizationTable" SET spend = spend + %s WHERE organization_id = %s',
)


async def _connect() -> Any:
    return await psycopg.AsyncConnection.connect(os.environ["REHEARSAL_DATABASE"], autocommit=True)


async def authenticate(_request: object, api_key: str) -> UserAPIKeyAuth:
    """The key's row, found by LiteLLM's own hash."""
    async with await _connect() as connection:
        found = await (await connection.execute(_KEY, [hash_token(api_key)])).fetchone()
    if found is None:
        raise ValueError("there is no such key")
    token, alias, spend, budget, team, organization, exceeded = found
    if exceeded or (budget is not None and spend >= budget):
        raise ValueError("the budget is used up")
    return UserAPIKeyAuth(
        api_key=token, key_alias=alias, spend=spend, max_budget=budget, team_id=team, org_id=organization
    )


class Booked(CustomLogger):  # type: ignore[misc]
    """Adds the cost that LiteLLM has computed to the counters of the key, its team and its organization."""

    async def async_log_success_event(self, kwargs: Any, **_: object) -> None:
        """Called by LiteLLM after each answer."""
        caller = kwargs["litellm_params"]["metadata"]
        names = ("user_api_key_hash", "user_api_key_team_id", "user_api_key_org_id")
        async with await _connect() as connection:
            for statement, name in zip(_BOOK, names, strict=True):
                await connection.execute(statement, [kwargs["response_cost"], caller[name]])


booked = Booked()
