"""What the judges of this folder share: a client of the OpenAI SDK that counts, and a loop over lines.

They run in an environment of their own. An ask comes in on stdin, its report goes out on stdout;
`tests/judges/responses/asks.py` describes both.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

Json = dict[str, Any]
Way = Callable[[Json, AsyncOpenAI, Json], Awaitable[None]]
"""Asks, and adds to the `turns` and the `sent_text` of a report."""


async def answer(ask: Json, ways: dict[str, Way]) -> Json:
    """Put an ask to the gateway, with a client of its own."""
    responses: list[Any] = []

    async def note(response: object) -> None:
        responses.append(response)

    report: Json = {"turns": [], "sent_text": "", "error": None}
    client = AsyncOpenAI(
        api_key=ask["key"],
        base_url=ask["base_url"],
        max_retries=ask["max_retries"],
        timeout=ask["timeout_s"],
        http_client=DefaultAsyncHttpxClient(trust_env=False, event_hooks={"response": [note]}),
    )
    async with client:
        try:
            await ways[ask["way"]](ask, client, report)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            cause = error.__cause__ or error
            code = getattr(cause, "code", None)
            report["error"] = {
                "name": type(error).__name__,
                "message": str(error),
                "status": getattr(cause, "status_code", None),
                "code": None if code is None else str(code),
            }
    report["statuses"] = [response.status_code for response in responses]
    report["headers"] = dict(responses[-1].headers) if responses else {}
    return report


def answer_lines(ways: dict[str, Way]) -> None:
    """Answer line by line, until there are no more."""
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            sys.stdout.write(f"{json.dumps(runner.run(answer(json.loads(line), ways)))}\n")
            sys.stdout.flush()
