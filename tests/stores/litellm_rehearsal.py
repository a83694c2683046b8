"""A rehearsal of the move from LiteLLM: 20 models, 40 keys in 4 teams of 2 organizations, every budget half spent.

| what | whose |
|---|---|
| the tables of the database, and the hash of each key | LiteLLM's migrations and code |
| the gateway before the switch | LiteLLM's proxy, if its Python is given; not its Prisma client (`litellm_plugin.py`) |
| the cost of each call before the switch | LiteLLM's code |
| organizations, teams, keys, budgets, and what was spent before | rows written here |
| the clients | OpenAI's package for Python, made once and used before and after |
| the provider | a server on loopback; each answer reports the same tokens |
| import, gateway after the switch | Penstock's commands, with a ledger in PostgreSQL |
"""

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import openai
import yaml

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresDatabase
from tests.faults.upstream import JSON, ByRequest, Script, Upstream, status
from tests.stores.postgres import PostgresServer

CALLS = 3
INPUT, OUTPUT = 1200, 345
_PREFIXES = ("openai", "hosted_vllm", "mistral", "deepseek")
_ORGANIZATIONS = {"retail": 4000, "labs": 1000}
_TEAMS = {"search": ("retail", 900), "shop": ("retail", 1500), "vision": ("labs", 400), "speech": ("labs", 333.33)}
_MASTER_KEY = "sk-of-the-rehearsal-0123456789abcdef"
_WAIT_S = 180.0


class Model(NamedTuple):
    """A model, with dollars for a million tokens."""

    name: str
    target: str
    input: Decimal
    output: Decimal

    @property
    def cost(self) -> Decimal:
        """Of one call."""
        return (self.input * INPUT + self.output * OUTPUT) / 1_000_000


class ClientKey(NamedTuple):
    """A key and the model that its client uses."""

    name: str
    secret: str
    team: str
    budget: Decimal
    model: Model


MODELS = [
    Model(
        f"model-{number:02}",
        f"{_PREFIXES[number % 4]}/upstream-{number:02}",
        Decimal(number + 1) / 4,
        Decimal(3 * number + 5) / 8,
    )
    for number in range(20)
]
KEYS = [
    ClientKey(
        f"client-{number:02}",
        f"sk-client-{number:02}-0123456789",
        [*_TEAMS][number % 4],
        Decimal(f"{10 + number}.50"),
        MODELS[number % 20],
    )
    for number in range(40)
]


class Rehearsed(NamedTuple):
    """What was seen, in seconds and in dollars."""

    gap_s: float
    """From the end of LiteLLM to Penstock's first answer, with the import between them."""
    import_s: float
    before: dict[str, Decimal]
    """What LiteLLM has as spent, by key, when it ends."""
    taken: dict[str, Decimal]
    """What Penstock has as spent after the import."""
    after: dict[str, Decimal]
    """The same after all clients have gone on."""
    answered: int
    """Calls that got an answer after the switch."""
    failed: list[str]
    teams: dict[str, tuple[Decimal, Decimal]]
    """What is left of each team's and organization's budget: in LiteLLM when it ends, in Penstock after the import."""

    def differences(self) -> list[str]:
        """Each amount that is not the same to the cent."""
        found = [
            f"{name}: {self.before[name]} in LiteLLM, {self.taken[name]} here"
            for name in self.before
            if cents(self.before[name]) != cents(self.taken[name])
        ]
        found += [
            f"{name}: {theirs} left in LiteLLM, {ours} here"
            for name, (theirs, ours) in self.teams.items()
            if theirs != ours
        ]
        costs = {key.name: self.taken[key.name] + CALLS * key.model.cost for key in KEYS}
        return found + [
            f"{name}: {self.after[name]} instead of {cost} at the end"
            for name, cost in costs.items()
            if abs(self.after[name] - cost) > Decimal("0.000000001") * CALLS
        ]


def migrations(packages: Path) -> list[str]:
    """LiteLLM's own SQL, from the folder of its packages."""
    files = sorted(packages.glob("litellm_proxy_extras/migrations/*/*.sql"))
    assert files
    return [file.read_text(encoding="utf-8") for file in files]


def hashes(python: str | Path) -> dict[str, str]:
    """The clients' keys, hashed by LiteLLM's own function."""
    command = [str(python), "-I", str(Path(__file__).with_name("litellm_hash.py")), "hash_token"]
    done = subprocess.run([*command, *(key.secret for key in KEYS)], check=True, capture_output=True, timeout=60)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def rehearse(
    folder: Path, postgres: PostgresServer, schema: Sequence[str], hashed: dict[str, str], proxy: str = ""
) -> Rehearsed:
    """Run it. `proxy` is a Python that has LiteLLM's proxy; without one, no call is made before the switch."""
    theirs, ours = postgres.new_database(), postgres.new_database()
    postgres.execute(theirs, *schema, _rows(hashed))
    with ExitStack() as stack:
        upstream = stack.enter_context(Upstream())
        for model in MODELS:
            upstream.play([ByRequest(_answer)], model.target.partition("/")[2])
        (folder / "config.yaml").write_text(_config(upstream.url))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        clients = [
            (key, openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key=key.secret, max_retries=0))
            for key in KEYS
        ]
        for _, client in clients:
            stack.callback(client.close)
        if proxy:
            with _litellm(folder, proxy, port, theirs):
                failed = _call_all(clients)
                assert not failed, f"{failed[0]}\n{(folder / 'litellm.log').read_text()[-3000:]}"
                with suppress(AssertionError):
                    _until(lambda: not _not_booked(theirs))
                assert not _not_booked(theirs), f"{_not_booked(theirs)}\n{(folder / 'litellm.log').read_text()[-3000:]}"
        ended = time.monotonic()
        before, left = _spent(theirs), _left(theirs)
        (folder / "penstock.toml").write_text("")
        _penstock(folder, "import", "litellm", "config.yaml", "--output", "penstock.toml", "--report", "report.txt")
        with (folder / "penstock.toml").open("a") as file:
            file.write(f'\n[ledger]\npostgres = "{ours}"\n')
        _penstock(folder, "check", "--config", "penstock.toml")
        options = ("--config", "penstock.toml", "--output", "again.toml", "--report", "keys.txt")
        _penstock(folder, "import", "litellm", "config.yaml", "--keys", theirs, *options)
        imported = time.monotonic()
        taken, teams = _spent_here(folder), _left_here(folder)
        reading_s = time.monotonic() - imported
        with _gateway(folder, port):
            first, *others = clients
            failed = _call_all([first], calls=1)
            gap_s = time.monotonic() - ended - reading_s
            failed += _call_all([first], calls=CALLS - 1) + _call_all(others)
        after = _spent_here(folder)
    return Rehearsed(
        gap_s,
        imported - ended,
        before,
        taken,
        after,
        CALLS * len(KEYS) - len(failed),
        failed,
        {name: (amount, teams[name]) for name, amount in left.items()},
    )


def cents(amount: Decimal) -> Decimal:
    """Rounded to a cent."""
    return amount.quantize(Decimal("0.01"))


# LiteLLM


def _config(provider: str) -> str:
    models = [
        {
            "model_name": model.name,
            "litellm_params": {
                "model": model.target,
                "api_base": provider,
                "api_key": "os.environ/PROVIDER_KEY",
                "input_cost_per_token": float(model.input / 1_000_000),
                "output_cost_per_token": float(model.output / 1_000_000),
            },
        }
        for model in MODELS
    ]
    return yaml.safe_dump(
        {
            "model_list": models,
            "general_settings": {
                "master_key": "os.environ/LITELLM_MASTER_KEY",
                "custom_auth": "litellm_plugin.authenticate",
            },
            "litellm_settings": {"callbacks": ["litellm_plugin.booked"]},
        },
        sort_keys=False,
    )


def _rows(hashed: dict[str, str]) -> str:
    """Every budget is half spent: of keys, of teams, and of organizations."""
    statements = []
    for name, budget in _ORGANIZATIONS.items():
        statements.append(
            f"""INSERT INTO "LiteLLM_BudgetTable" (budget_id, max_budget, budget_duration, created_by, updated_by,
            updated_at) VALUES ('b-{name}', {budget}, '1mo', 'a', 'a', now());
            INSERT INTO "LiteLLM_OrganizationTable" (organization_id, organization_alias, budget_id, models, spend,
            created_by, updated_by, updated_at) VALUES ('{name}', '{name}', 'b-{name}', '{{}}', {budget / 2}, 'a', 'a',
            now());"""
        )
    for name, (organization, amount) in _TEAMS.items():
        statements.append(
            f"""INSERT INTO "LiteLLM_TeamTable" (team_id, team_alias, organization_id, max_budget, budget_duration,
            spend, updated_at) VALUES ('{name}', '{name}', '{organization}', {amount}, '1mo', {amount / 2}, now());"""
        )
    statements += [
        f"""INSERT INTO "LiteLLM_VerificationToken" (token, key_alias, spend, max_budget, budget_duration, team_id)
        VALUES ('{hashed[key.secret]}', '{key.name}', {key.budget / 2}, {key.budget}, '1mo', '{key.team}');"""
        for key in KEYS
    ]
    return "\n".join(statements)


def _not_booked(url: str) -> list[str]:
    """The keys to whose counters LiteLLM has not added the cost of all calls before the switch, as floats."""
    spent, cent = _spent(url), Decimal("0.01")
    return [
        f"{key.name}: {spent[key.name]}"
        for key in KEYS
        if abs(spent[key.name] - key.budget / 2 - CALLS * key.model.cost) > cent / 1000
    ]


@contextmanager
def _litellm(folder: Path, python: str, port: int, database: str) -> Iterator[None]:
    (folder / "litellm_plugin.py").write_text(Path(__file__).with_name("litellm_plugin.py").read_text())
    environment = {
        "PATH": f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "LITELLM_MASTER_KEY": _MASTER_KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it fetches no prices from the internet
        "PROVIDER_KEY": "a-key-of-the-provider",
        "REHEARSAL_DATABASE": database,
    }
    arguments = ["--config", "config.yaml", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "litellm.log").open("wb") as log:
        process = subprocess.Popen(
            [Path(python).with_name("litellm"), *arguments], cwd=folder, env=environment, stdout=log, stderr=log
        )
        with _ended(process):
            _until(lambda: _answers(f"http://127.0.0.1:{port}/health/liveliness"), process)
            yield


# Penstock


def _environment(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PENSTOCK_STATE": str(folder / "state"),
        "LITELLM_MASTER_KEY": _MASTER_KEY,
        "PROVIDER_KEY": "a-key-of-the-provider",
    }


def _penstock(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def _gateway(folder: Path, port: int) -> Iterator[None]:
    with (folder / "penstock.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "serve", "--config", "penstock.toml", "--port", str(port)],
            cwd=folder,
            env=_environment(folder),
            stdout=log,
            stderr=log,
        )
        with _ended(process):
            _until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"), process)
            yield


# Both


@contextmanager
def _ended(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Ends the process at the end, and waits for that."""
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_WAIT_S)
        finally:
            process.kill()


def _answers(url: str) -> bool:
    with suppress(OSError), urlopen(url, timeout=5) as response:
        return bool(response.status == 200)
    return False


def _until(true: Any, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not true():
        assert process is None or process.poll() is None, "the gateway has ended: see its log"
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _call_all(clients: Sequence[tuple[ClientKey, openai.OpenAI]], calls: int = CALLS) -> list[str]:
    """The errors of the clients, each of which calls so often; every other call is streamed."""

    def call(pair: tuple[ClientKey, openai.OpenAI]) -> list[str]:
        key, client = pair
        errors = []
        for number in range(calls):
            messages: Any = [{"role": "user", "content": "Hello"}]
            try:
                if number % 2:
                    usage: Any = {"include_usage": True}
                    stream = client.chat.completions.create(
                        model=key.model.name, messages=messages, stream=True, stream_options=usage
                    )
                    text = "".join(part.choices[0].delta.content or "" for part in stream if part.choices)
                else:
                    whole = client.chat.completions.create(model=key.model.name, messages=messages)
                    text = whole.choices[0].message.content or ""
                assert text == "Hello from the provider", text
            except openai.OpenAIError as error:
                errors.append(f"{key.name}: {error}")
        return errors

    with ThreadPoolExecutor(8) as threads:
        return [error for errors in threads.map(call, clients) for error in errors]


def _answer(body: Any) -> Script:
    usage = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    base = {"id": "chatcmpl-1", "created": 1, "model": body["model"]}
    message = {"role": "assistant", "content": "Hello from the provider"}
    if not body.get("stream"):
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = base | {"object": "chat.completion", "choices": [choice], "usage": usage}
        return [status(200, JSON, json.dumps(whole).encode())]
    base["object"] = "chat.completion.chunk"
    events = [
        base | {"choices": [{"index": 0, "delta": message, "finish_reason": None}]},
        base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        base | {"choices": [], "usage": usage},
    ]
    sent = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
    return [status(200, {"content-type": "text/event-stream"}, sent.encode())]


def _fetch(url: str, sql: str) -> list[Any]:
    with closing(PostgresDatabase(Secret(url, "rehearsal"), readonly=True, schema="public")) as database:
        return [*database.fetch(sql)]


def _spent(url: str) -> dict[str, Decimal]:
    rows = _fetch(url, 'SELECT key_alias, spend FROM "LiteLLM_VerificationToken" ORDER BY 1')
    return {name: Decimal(spend).quantize(Decimal("0.000001")) for name, spend in rows}


def _left(url: str) -> dict[str, Decimal]:
    """Of the budgets of organizations and teams, by the path that they have in Penstock."""
    teams = _fetch(url, 'SELECT organization_id || $$/$$ || team_id, max_budget - spend FROM "LiteLLM_TeamTable"')
    above = _fetch(
        url,
        """SELECT organization_id, max_budget - spend FROM "LiteLLM_OrganizationTable" JOIN "LiteLLM_BudgetTable"
        USING (budget_id)""",
    )
    return {path: cents(Decimal(left)) for path, left in (*teams, *above)}


def _spent_here(folder: Path) -> dict[str, Decimal]:
    printed = _penstock(folder, "usage", "--by", "key", "--csv", "--config", "penstock.toml")
    rows = [*csv.DictReader(printed.splitlines())]
    return {row["key_name"]: Decimal(row["cost_usd"]) for row in rows if row["key_name"] in {key.name for key in KEYS}}


def _left_here(folder: Path) -> dict[str, Decimal]:
    teams = json.loads(_penstock(folder, "teams", "list", "--json", "--config", "penstock.toml"))["teams"]
    return {team["path"]: cents(Decimal(team["budgets"][0]["left"])) for team in teams}
