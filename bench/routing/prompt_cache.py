"""What an agent costs on Claude through a chat client, with breakpoints and without: `scripts/bench-prompt-cache`.

The gateway, its ledger and its prices are the real ones; the provider is a script with the rules of Anthropic's prompt
cache (`cached_provider.py`). The conversation has 40 turns of calls of a tool, each half a minute after the one before,
and one pause of ten minutes, after which nothing is cached any more. The cost is what the gateway tells the client.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import urllib.request
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from bench.load.processes import free_port, running, wait_for
from bench.routing.cached_provider import PromptCache, serving

Json = dict[str, Any]
MODEL = "claude-opus-4-8"
LEAST = 1_024
BAR = 0.25
_TURN_S, _PAUSE_S = 30.0, 600.0
_CONFIGURATION = """
[server]
listen = "127.0.0.1:{port}"
log = "off"
[admin]
enabled = false
[ledger]
folder = "{folder}"
[providers.anthropic]
base_url = "{url}"
api_key = "the-key-of-the-provider"
[routes.cached]
targets = ["anthropic/{model}"]
[routes.uncached]
targets = ["anthropic/{model}"]
cache = "off"
"""


class Bill(NamedTuple):
    """What a conversation has cost, and its input tokens."""

    cost: Decimal
    input: int
    cached: int


class Agent:
    """A coding agent that speaks chat completions: a system prompt, ten tools, and a result of a tool in each turn."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tools = [
            {
                "type": "function",
                "function": {
                    "name": f"tool_{number}",
                    "description": self._text(1_500),
                    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                },
            }
            for number in range(10)
        ]
        self.messages: list[Json] = [
            {"role": "system", "content": self._text(20_000)},
            {"role": "user", "content": self._text(400)},
        ]

    def go_on(self, message: Json) -> None:
        """Add an answer, and the results of its calls."""
        self.messages.append(message)
        for call in message.get("tool_calls") or ():
            result = self._text(self._random.randrange(500, 8_000))
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    def _text(self, size: int) -> str:
        words = ("".join(self._random.choices("etaoinshrdlu", k=self._random.randrange(2, 9))) for _ in range(size))
        return " ".join(words)[:size]


def converse(base_url: str, route: str, turns: int, seed: int, wait: Any) -> Bill:
    """Have a conversation, and return what it has cost."""
    agent, cost, read, cached = Agent(seed), Decimal(0), 0, 0
    for turn in range(turns):
        body = {"model": route, "messages": agent.messages, "tools": agent.tools}
        request = urllib.request.Request(
            f"{base_url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            answer = json.loads(response.read())
            cost += Decimal(response.headers["x-penstock-cost"])
        usage = answer["usage"]
        read += usage["prompt_tokens"]
        cached += usage["prompt_tokens_details"]["cached_tokens"]
        agent.go_on(answer["choices"][0]["message"])
        wait(_PAUSE_S if turn == turns // 2 else _TURN_S)
    return Bill(cost, read, cached)


def answer(body: Json) -> list[Json]:
    """The blocks of an answer: some words, and a call whose id is the number of the message."""
    number = len(body["messages"])
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "tool_1", "input": {"path": f"src/{number}.py"}}
    return [{"type": "text", "text": f"Step {number}. " + "Now I look at the next file. " * 6}, call]


def bills(turns: int, seed: int) -> dict[str, Bill]:
    """What the conversation costs by each route."""
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    found: dict[str, Bill] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cache = PromptCache(lambda: now[0], LEAST)
        url, _ = stack.enter_context(serving(cache, answer))
        port = free_port()
        file = folder / "penstock.toml"
        file.write_text(_CONFIGURATION.format(port=port, folder=folder / "ledger", url=url, model=MODEL))
        command = [sys.executable, "-m", "penstock", "serve", "--config", str(file)]
        environment = os.environ | {"PENSTOCK_STATE": str(folder)}
        stack.enter_context(running(command, environment=environment))
        base_url = f"http://127.0.0.1:{port}"
        wait_for(f"{base_url}/health")
        for route in ("uncached", "cached"):
            found[route] = converse(base_url, route, turns, seed, wait)
            wait(2 * _PAUSE_S)
    return found


def main() -> int:
    """Measure and print; return 1 if the conversation costs more than the bar."""
    parser = argparse.ArgumentParser(prog="scripts/bench-prompt-cache", description=__doc__)
    parser.add_argument("--turns", type=int, default=40, help="turns of the conversation (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=34, help="of its texts (default: %(default)s)")
    options = parser.parse_args()
    found = bills(options.turns, options.seed)
    print(f"{'breakpoints':14}{'input tokens':>14}{'from the cache':>16}{'cost':>12}")
    for route, bill in found.items():
        share = f"{bill.cached / bill.input:.1%}"
        print(f"{'none' if route == 'uncached' else 'set':14}{bill.input:>14,}{share:>16}{f'${bill.cost:.4f}':>12}")
    ratio = found["cached"].cost / found["uncached"].cost
    print(f"\nwith breakpoints it costs {ratio:.3f} of the price without; at most {BAR}")
    return 0 if ratio <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
