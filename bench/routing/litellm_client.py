"""Drives LiteLLM's router, in an environment that has it: `PYTHON -m bench.routing.litellm_client URL STRATEGY SECONDS
RATE SEED`. It prints what became of each call as JSON.

The router has the targets, prices and timeouts that Penstock has, three retries, and otherwise its own defaults.
"""

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any

from bench.routing.load import FIRST_EVENT_S, PRICES, PROMPT, TARGETS, Answer, drive, start

_RETRIES = 3
_PER_MILLION = 1_000_000


def router(url: str, strategy: str) -> Any:
    """A router with one group of the three targets."""
    litellm: Any = import_module("litellm")  # which the environment of Penstock has not
    litellm.suppress_debug_info = True
    models = [
        {
            "model_name": "model",
            "litellm_params": {
                "model": f"openai/{target}",
                "api_base": f"{url}/{target}/v1",
                "api_key": "key",
                "stream_timeout": FIRST_EVENT_S,
                "timeout": FIRST_EVENT_S,
                "input_cost_per_token": PRICES[target][0] / _PER_MILLION,
                "output_cost_per_token": PRICES[target][1] / _PER_MILLION,
                "max_retries": 0,
            },
        }
        for target in TARGETS
    ]
    return litellm.Router(model_list=models, routing_strategy=strategy, num_retries=_RETRIES, timeout=3 * FIRST_EVENT_S)


async def main() -> None:
    """Drive and print."""
    url, strategy, seconds, rate, seed = sys.argv[1:]
    asked = router(url, strategy)

    async def ask() -> Answer:
        began, first_s, complete = time.monotonic(), 0.0, False
        stream = await asked.acompletion(model="model", messages=[{"role": "user", "content": PROMPT}], stream=True)
        async for part in stream:
            choice = part.choices[0] if part.choices else None
            if choice is not None and choice.delta.content and not first_s:
                first_s = time.monotonic() - began
            complete = complete or (choice is not None and choice.finish_reason == "stop")
        return Answer(complete, first_s)

    await ask()  # what it imports at its first call does not count
    start(url, "mixed", float(seconds), int(seed))
    print(json.dumps(await drive(ask, float(seconds), float(rate), int(seed))))


if __name__ == "__main__":
    asyncio.run(main())
