"""`penstock import litellm --keys`: keys of a database with LiteLLM's own schema open a gateway, with their budgets.

LiteLLM's own code hashes the keys, and says what is left of each budget.
"""

import csv
import json
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock.providers.secret import Secret
from penstock.stores.book.postgres import PostgresDatabase
from tests.cli.support import invoke
from tests.faults.client import Response, body, post
from tests.faults.gateway import Gateway, settings
from tests.faults.scripts import unstreamed
from tests.faults.upstream import Upstream
from tests.judges.packages import litellm_python
from tests.stores.postgres import PostgresServer

pytestmark = pytest.mark.slow


SEARCH, PLAIN, TEAM, SPENT = "sk-search-0123456789", "no-prefix-0123456789", "sk-of-a-team-4711", "sk-nearly-spent-4712"
BLOCKED, EXPIRED, OTHER_MODEL = "sk-blocked-4713", "sk-expired-4714", "sk-other-model-4715"
STORED_PLAIN = "no-prefix-either-4716"
SECRETS = (SEARCH, PLAIN, TEAM, SPENT, BLOCKED, EXPIRED, OTHER_MODEL, STORED_PLAIN)


def hash_by_litellm(function: str) -> dict[str, str]:
    """The keys, hashed by a function of LiteLLM's own code."""
    command = [str(litellm_python()), "-I", str(Path(__file__).with_name("litellm_hash.py")), function, *SECRETS]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    found: dict[str, str] = json.loads(result.stdout)
    return found


# SQL, with the name of each key's hash.
ROWS = """
INSERT INTO "LiteLLM_BudgetTable" (budget_id, max_budget, budget_duration, created_by, updated_by, updated_at)
VALUES ('b1', 500, '30d', 'admin', 'admin', now());
INSERT INTO "LiteLLM_OrganizationTable"
    (organization_id, organization_alias, budget_id, models, spend, created_by, updated_by, updated_at)
VALUES ('o1', 'Acme Inc', 'b1', '{{}}', 120, 'admin', 'admin', now());
INSERT INTO "LiteLLM_TeamTable"
    (team_id, team_alias, organization_id, max_budget, budget_duration, spend, rpm_limit, updated_at)
VALUES ('t1', 'search', 'o1', 100, '1mo', 99.99, 600, now());
INSERT INTO "LiteLLM_VerificationToken"
    (token, key_name, key_alias, spend, max_budget, budget_duration, models, blocked, expires, team_id, rpm_limit)
VALUES
    ('{search}', 'sk-...6789', 'search', 3.5, 25, '1mo', '{{main/river-1}}', NULL, NULL, NULL, 60),
    ('{plain}', NULL, NULL, 0, NULL, NULL, '{{all-proxy-models}}', NULL, NULL, NULL, NULL),
    ('{team}', 'sk-...4711', 'ci', 0, NULL, NULL, '{{}}', NULL, now() + interval '1 day', 't1', NULL),
    ('{spent}', 'sk-...4712', 'spent', 4.99, 5, NULL, '{{}}', NULL, NULL, NULL, NULL),
    ('{blocked}', 'sk-...4713', 'blocked', 0, NULL, NULL, '{{}}', TRUE, NULL, NULL, NULL),
    ('{expired}', 'sk-...4714', 'expired', 0, NULL, NULL, '{{}}', NULL, now() - interval '1 day', NULL, NULL),
    ('{other_model}', 'sk-...4715', 'lake', 0, NULL, NULL, '{{main/lake-*}}', NULL, NULL, NULL, NULL),
    ('{stored_plain}', NULL, NULL, 0, NULL, NULL, '{{}}', NULL, NULL, NULL, NULL);
UPDATE "LiteLLM_VerificationToken"
    SET metadata = '{{"cost_center": 4711, "tags": ["eu", "ci"], "logging": [{{"a": 1}}]}}'
    WHERE key_alias = 'ci';
"""


@pytest.fixture(scope="module")
def migrations() -> list[str]:
    """LiteLLM's own SQL, from its package."""
    package = litellm_python().parent.parent.glob("lib/python*/site-packages/litellm_proxy_extras/migrations/*/*.sql")
    files = sorted(package)
    assert files
    return [file.read_text(encoding="utf-8") for file in files]


@pytest.fixture(scope="module")
def hashed() -> dict[str, str]:
    """The keys as LiteLLM's own code has them in its database.

    It looks a key up by its hash if it begins with `sk-`, and otherwise as it is. But it stores the hash of any key.
    """
    return {**hash_by_litellm("_hash_token_if_needed"), STORED_PLAIN: hash_by_litellm("hash_token")[STORED_PLAIN]}


@pytest.fixture(scope="module")
def litellm(migrations: list[str], hashed: dict[str, str], postgres: PostgresServer) -> str:
    """The URL of a database as LiteLLM leaves it."""
    assert hashed[PLAIN] == PLAIN
    assert all(secret not in hashed.values() for secret in SECRETS if secret != PLAIN)
    url = postgres.new_database()
    rows = ROWS.format(
        search=hashed[SEARCH],
        plain=hashed[PLAIN],
        team=hashed[TEAM],
        spent=hashed[SPENT],
        blocked=hashed[BLOCKED],
        expired=hashed[EXPIRED],
        other_model=hashed[OTHER_MODEL],
        stored_plain=hashed[STORED_PLAIN],
    )
    postgres.execute(url, *migrations, rows)
    return f"{url}?connection_limit=10&schema=public"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with the ledger in `state`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_STATE", str(tmp_path / "state"))
    (tmp_path / "config.yaml").write_text("model_list: []\n")
    return tmp_path


def penstock(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def take_over(folder: Path, url: str, *options: str) -> dict[str, Any]:
    """The report of an import."""
    files = ["config.yaml", "--output", "imported.toml", "--report", "report.json"]
    penstock("import", "litellm", *files, "--keys", url, "--config", "own.toml", "--json", *options)
    report = (folder / "report.json").read_text()
    assert not any(secret in report for secret in SECRETS)
    return {finding["field"]: finding for finding in json.loads(report)["fields"]}


def shown() -> dict[str, Any]:
    """The keys, by name."""
    listed = json.loads(penstock("keys", "list", "--config", "own.toml", "--json", "--all"))["keys"]
    return {key["name"]: key for key in listed}


def test_keys_of_litellm_open_the_gateway_with_their_budgets(
    litellm: str, hashed: dict[str, str], folder: Path
) -> None:
    with Upstream() as upstream:
        configuration = settings(upstream.url, 0).replace("output = 2.0", "output = 1000.0")
        (folder / "own.toml").write_text(configuration)
        take_over(folder, litellm, "--dry-run")
        assert shown() == {}

        report = take_over(folder, litellm)
        assert not any(stored in str(report) for stored in hashed.values())
        assert report["key search.max_budget"]["status"] == "taken"
        assert report["key search.spend"]["status"] == "taken"
        assert report["organization Acme-Inc.max_budget"]["status"] == "approximated"
        assert report["key ci.metadata.cost_center"]["status"] == "taken"
        assert report["key ci.metadata.logging"]["status"] == "not possible"
        keys = shown()
        assert len(keys) == 8
        assert keys["ci"]["tags"] == {"cost_center": "4711", "tags": "eu,ci"}
        search = keys["search"]
        assert (search["budget"], search["period"], search["spent"]) == ("25.00", "month", "3.50")
        assert (search["requests_per_minute"], search["models"]) == (60, ["main/river-1"])
        teams = json.loads(penstock("teams", "list", "--config", "own.toml", "--json"))["teams"]
        assert {team["path"]: [each["spent"] for each in team["budgets"]] for team in teams} == {
            "Acme-Inc": ["120.00"],
            "Acme-Inc/search": ["99.99"],
        }

        assert take_over(folder, litellm)["key search"]["note"].endswith("left as it is")
        assert shown() == keys

        upstream.play(unstreamed(), "river-1")
        with Gateway(folder, upstream, configuration) as gateway:
            answers = {secret: ask(gateway, secret) for secret in SECRETS}
            answers["sk-unknown-0123456789"] = ask(gateway, "sk-unknown-0123456789")
    assert {secret: answer.status for secret, answer in answers.items()} == {
        SEARCH: 200,
        PLAIN: 200,
        TEAM: 429,
        SPENT: 429,
        BLOCKED: 401,
        EXPIRED: 401,
        OTHER_MODEL: 403,
        STORED_PLAIN: 200,
        "sk-unknown-0123456789": 401,
    }
    assert b"the team Acme-Inc/search" in answers[TEAM].body


def ask(gateway: Gateway, key: str) -> Response:
    gateway.expected += 1
    with gateway.client() as client:
        client.send(post(body("main/river-1", stream=False), {"Authorization": f"Bearer {key}"}))
        return client.response()


# Counters of LiteLLM that were reset at different times, or never. `now` is the name of a key whose reset is due.
COUNTERS = """
INSERT INTO "LiteLLM_BudgetTable" (budget_id, max_budget, budget_duration, created_by, updated_by, updated_at)
VALUES ('tier', 50, '30d', 'a', 'a', now()), ('org', 1000, '30d', 'a', 'a', now()), ('no', 0, NULL, 'a', 'a', now()),
    ('project', 40, NULL, 'a', 'a', now());
INSERT INTO "LiteLLM_OrganizationTable"
    (organization_id, organization_alias, budget_id, models, spend, created_by, updated_by, updated_at)
VALUES ('acme', 'acme', 'org', '{}', 30, 'a', 'a', now()), ('free', 'free', 'no', '{}', 7, 'a', 'a', now());
INSERT INTO "LiteLLM_TeamTable" (team_id, team_alias, organization_id, max_budget, budget_duration, spend, updated_at)
VALUES ('mobile', 'mobile', NULL, 100, '30d', 10, now()), ('reset', 'reset', NULL, 300, '30d', 20, now()),
    ('big', 'big', 'acme', 10000, NULL, 5000, now()), ('open', 'open', 'free', NULL, NULL, 900, now());
INSERT INTO "LiteLLM_ProjectTable"
    (project_id, project_alias, team_id, budget_id, spend, models, created_by, updated_by, updated_at)
VALUES ('apps', 'apps', 'big', 'project', 11, '{}', 'a', 'a', now());
INSERT INTO "LiteLLM_VerificationToken"
    (token, key_alias, spend, max_budget, budget_duration, budget_reset_at, team_id, project_id, budget_id, metadata)
VALUES
    (repeat('1', 64), 'lifetime', 5000, NULL, NULL, NULL, 'mobile', NULL, NULL, '{}'),
    (repeat('2', 64), 'monthly', 150.25, 200, '30d', now() + interval '9 days', 'reset', NULL, NULL, '{}'),
    (repeat('3', 64), 'tiered', 12, NULL, NULL, NULL, NULL, NULL, 'tier', '{}'),
    (repeat('4', 64), 'raised', 5.5, 5, NULL, NULL, NULL, NULL, NULL,
        '{"temp_budget_increase": 3, "temp_budget_expiry": "2999-01-01T00:00:00"}'),
    (repeat('5', 64), 'over', 10, 2, NULL, NULL, 'big', NULL, NULL, '{}'),
    (repeat('6', 64), 'project-key', 4, 9, '7d', NULL, 'big', 'apps', NULL, '{}'),
    (repeat('7', 64), 'due', 40, 50, '1d', now() - interval '1 hour', NULL, NULL, NULL, '{}');
"""
ROWS_OF = """
SELECT row_to_json(t)::jsonb || jsonb_build_object('budget', (SELECT row_to_json(b) FROM "LiteLLM_BudgetTable" b
    WHERE b.budget_id = to_jsonb(t)->>'budget_id')) FROM "{table}" t"""


@pytest.fixture(scope="module")
def counters(migrations: list[str], postgres: PostgresServer) -> str:
    """A database with the counters."""
    url = postgres.new_database()
    postgres.execute(url, *migrations, COUNTERS)
    return url


def judge(*arguments: str, given: object = None) -> str:
    command = [str(litellm_python()), "-I", str(Path(__file__).with_name("litellm_budgets.py")), *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=60, input=json.dumps(given)
    ).stdout


def left_in_litellm(url: str) -> dict[str, dict[str, str]]:
    """What LiteLLM's own query and checks leave of each budget, by kind and name; without those that have none."""
    query = judge("sql").replace("WHERE v.token = $1", "")
    kinds = {"key": ("key_alias", f"SELECT row_to_json(t) FROM ({query}) t")} | {
        kind: (f"{kind}_alias", ROWS_OF.format(table=f"LiteLLM_{kind.capitalize()}Table"))
        for kind in ("team", "project", "organization")
    }
    with closing(PostgresDatabase(Secret(url, "test"), readonly=True, schema="public")) as database:
        rows = {
            kind: {(row := json.loads(str(text)))[name]: row for (text,) in database.fetch(sql)}
            for kind, (name, sql) in kinds.items()
        }
    found: dict[str, dict[str, str]] = json.loads(judge(given=rows))
    return {kind: {name: left for name, left in each.items() if left} for kind, each in found.items()}


def test_the_same_is_left_of_every_budget(counters: str, folder: Path) -> None:
    (folder / "own.toml").write_text("")
    theirs = left_in_litellm(counters)
    theirs["key"]["due"] = "50.00"  # after the next run of LiteLLM's job
    assert theirs["key"] == {
        "monthly": "49.75", "tiered": "38.00", "raised": "2.50", "over": "0.00", "project-key": "5.00", "due": "50.00"
    }  # fmt: skip
    report = take_over(folder, counters)
    keys = {name: key["left"] for name, key in shown().items() if key["budget"] is not None}
    assert keys == theirs["key"]
    teams = json.loads(penstock("teams", "list", "--config", "own.toml", "--json"))["teams"]
    paths = {"mobile": "mobile", "reset": "reset", "big": "acme/big", "acme": "acme", "apps": "acme/big/apps"}
    left = {paths[name]: left for kind in ("team", "project", "organization") for name, left in theirs[kind].items()}
    assert {team["path"]: team["budgets"][0]["left"] for team in teams if team["budgets"]} == left
    booked = csv.DictReader(penstock("usage", "--by", "team", "--csv", "--config", "own.toml").splitlines())
    assert {row["team"]: row["cost_usd"] for row in booked}["acme"] == "-4970.000000000"  # the correction of acme/big
    assert "-$4,970.0000" in penstock("usage", "--by", "team", "--config", "own.toml")
    assert report["key lifetime.spend"]["note"] == "not taken over: no budget counts it"
    assert report["key raised.metadata.temp_budget_increase"]["status"] == "approximated"


def test_a_key_and_a_model_are_compared(counters: str, folder: Path) -> None:
    (folder / "own.toml").write_text('[providers.main]\nbase_url = "http://127.0.0.1:9/v1"\n')
    (folder / "config.yaml").write_text(
        "model_list:\n"
        "  - {model_name: main/river, litellm_params: {model: openai/river}}\n"
        "  - {model_name: lake, litellm_params: {model: openai/lake}}\n"
    )
    take_over(folder, counters)
    command = ("import", "litellm", "config.yaml", "--keys", counters, "--config", "own.toml", "--compare")
    both = json.loads(penstock(*command, "monthly", "main/river", "--json"))
    assert both == {
        "key": "monthly",
        "model": "main/river",
        "litellm": {"refused": "", "targets": ["openai/river"], "left": ["49.75", "280.00"]},
        "penstock": {"refused": "", "targets": ["main/river"], "left": ["49.75", "280.00"]},
        "same": True,
    }
    over = invoke(*command, "over", "main/river")
    assert (over.exit_code, "both do the same" in over.output) == (0, True)
    assert "the budget of this key is used up" in over.output
    lake = invoke(*command, "monthly", "lake")
    assert (lake.exit_code, "THEY DIFFER" in lake.output) == (1, True)
    assert "there is no such model" in lake.output
    assert "has no such key" in invoke(*command, "sk-unknown-1234567", "lake").output


@pytest.mark.usefixtures("folder")
def test_another_database_is_refused(postgres: PostgresServer) -> None:
    result = invoke("import", "litellm", "config.yaml", "--keys", postgres.new_database())
    assert result.exit_code == 1
    assert "has no table LiteLLM_VerificationToken: is this the database of LiteLLM?" in result.output
