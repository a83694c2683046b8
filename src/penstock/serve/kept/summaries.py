"""Summaries: what clients get and send back in place of a conversation that the gateway had summarised.

The client keeps the summary, sealed for its key. The secret is that of the content store, which outlives the gateway
and which all machines share; without a ledger, it ends with the gateway.
"""

import asyncio
from functools import partial

from penstock.core.dialects.dialect import Compaction, RequestError
from penstock.gateway.content.answer_ids import AnswerIds
from penstock.gateway.keys.client_key import ClientKey
from penstock.serve.kept.keeper import UNAVAILABLE
from penstock.serve.kept.kept_content import KeptContent
from penstock.serve.surfaces.call_session import report

_NAME = "summaries"
# How long a request waits for the secret.
_WAIT_S = 5.0


class SummarySecret:
    """The secret with which summaries are sealed. It is read when it is first needed."""

    def __init__(self, content: KeptContent | None, otherwise: bytes) -> None:
        """`content` is None without a ledger: then it is `otherwise`."""
        self._content = content
        self._secret = otherwise if content is None else b""

    async def read(self) -> bytes:
        """The secret. Raises `RequestError` if it cannot be read now."""
        if not self._secret and self._content is not None:
            try:
                async with asyncio.timeout(_WAIT_S):
                    self._secret = await self._content.named_secret(_NAME)
            except Exception as error:  # noqa: BLE001 - the client must get a response
                report(error)
                raise RequestError(UNAVAILABLE) from None
        return self._secret


class Summaries:
    """The summaries of one API."""

    def __init__(self, compaction: Compaction, secret: SummarySecret) -> None:
        self.compaction = compaction
        self._secret = secret

    def may_be_in(self, body: bytes) -> bool:
        """Whether a request may have a summary, or ask for one. Few do."""
        return self.compaction.mark in body

    def are_in(self, body: bytes) -> bool:
        """Whether a request for which `may_be_in` is true has a summary, as far as its bytes show."""
        return self.compaction.prefix.encode() in body

    async def seals(self) -> AnswerIds:
        """What seals summaries, and opens them. Raises `RequestError` if it does not work now."""
        return AnswerIds(await self._secret.read(), self.compaction.prefix)

    def opened(self, body: bytes, seals: AnswerIds, key: ClientKey | None) -> bytes:
        """A request of this key with its summaries as messages. Raises `RequestError` if one is not of this key."""
        return self.compaction.open(body, partial(seals.unseal, owner=seals.owner(key)))
