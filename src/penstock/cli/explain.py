"""`penstock explain`: which targets a request would go to, in which order, why, and what they would get of it."""

import json
import os
import sys
from pathlib import Path

import click

from penstock.amounts import money
from penstock.cli.book import book_of, load_config
from penstock.cli.options import config_option, json_option
from penstock.cli.table import Column, Table
from penstock.cli.text import one_line, to_json
from penstock.core.dialects.dialect import RequestError
from penstock.core.dialects.registry import DEFAULT_DIALECT, clients_speak, surface_dialect
from penstock.core.hub.losses import counted
from penstock.core.hub.request import ClientRequest
from penstock.gateway.billing.prices import PriceBook, PriceChanges
from penstock.gateway.calls.explanation import ExplainedTarget, explain
from penstock.gateway.config import Config
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.teams.chain import Chain

# The members by which a request in a file is recognised; other requests are of chat completions.
_MEMBERS = {"input": "openai_responses", "contents": "gemini", "inferenceConfig": "bedrock_converse"}
# What is asked if no request is given, in each API.
_QUESTION: dict[str, dict[str, object]] = {
    "openai_responses": {"input": "Hello"},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
    "bedrock_converse": {"messages": [{"role": "user", "content": [{"text": "Hello"}]}]},
    "anthropic_messages": {"max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]},
}
_CHAT: dict[str, object] = {"messages": [{"role": "user", "content": "Hello"}]}
_PER_MILLION = 1_000_000
_NANO_IN_PICO = 1_000


@click.command(short_help="Say where a request would go, and why, without a call.")
@click.argument("model", required=False, default="")
@click.option("--as", "key_name", metavar="KEY", default="", help="The name or id of the key that would ask.")
@click.option(
    "--request",
    "request_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A request in a file, in place of a short question.",
)
@click.option(
    "--api",
    metavar="API",
    type=click.Choice(sorted(clients_speak())),
    help="The client's API, such as anthropic_messages.",
)
@config_option
@json_option
def command(
    model: str,
    key_name: str,
    request_file: Path | None,
    api: str | None,
    file: Path | None,
    *,
    as_json: bool,
) -> None:
    """Say which targets of a model would be tried, in which order and why; at which price; and what each would get.

    No call is made. Cool-downs and measures of a running gateway are not known here.
    """
    config = load_config(file)
    try:
        request = _request(model, request_file, api)
        name, rows = explain(config, _prices(config), request, _key(config, key_name) if key_name else None)
    except RequestError as error:
        raise click.ClickException(error.failure.message) from error
    if as_json:
        tokens = request.estimate().tokens
        click.echo(to_json({"model": name, "input_estimate": tokens, "targets": list(map(_json, rows))}))
    else:
        click.echo(one_line(f"{name}, asked by {request.dialect}, some {request.estimate().tokens:,} input tokens"))
        _show(rows)
    sys.exit(0 if any(row.tried is not None and not row.obstacle for row in rows) else 1)


def _request(model: str, file: Path | None, api: str | None) -> ClientRequest:
    fields: dict[str, object] = {}
    if file is not None:
        try:
            fields = json.loads(file.read_bytes())
        except ValueError as error:
            raise click.ClickException(f"{file}: is not JSON: {error}") from error
        if not isinstance(fields, dict):
            raise click.ClickException(f"{file}: must be a JSON object, the body of a request")
    dialect = api or next((name for member, name in _MEMBERS.items() if member in fields), DEFAULT_DIALECT)
    fields = fields or {**_QUESTION.get(dialect, _CHAT), "stream": True}
    model = model or str(fields.get("model") or "")
    if not model:
        raise click.UsageError("name a model, or a request in a file that has one")
    surface = surface_dialect(dialect)
    path = surface.path.replace("{model}", model)
    return surface.read_request(json.dumps(fields | {"model": model}).encode(), {}, path)


def _prices(config: Config) -> PriceBook:
    return PriceBook.load(os.environ, config.prices, changes=PriceChanges.of(config.finance))


def _key(config: Config, wanted: str) -> ClientKey:
    with book_of(config, readonly=True) as book:
        stored = book.keys()
        found = [each for each in stored if wanted in (each.id, each.name)]
        if len(found) != 1:
            problem = f"{len(found)} keys have this name; give the id of one" if found else "there is no such key"
            raise click.ClickException(f"--as {wanted!r}: {problem}")
        return Chain(book.teams()).client_key(found[0])


def _show(rows: list[ExplainedTarget]) -> None:
    heads = ("try", "target", "API", "why", "$ in / out per 1M", "what it gets")
    table = Table([Column(head, wraps=head in ("target", "why", "what it gets")) for head in heads])
    table.show([_cells(row) for row in rows])


def _cells(row: ExplainedTarget) -> list[str]:
    price = row.price.price.rates if row.price is not None else None
    amounts = f"{_dollars(price.input)} / {_dollars(price.output)}" if price is not None else "unpriced"
    key = f" [{row.provider_key}]" if row.provider_key else ""
    number = "–" if row.tried is None else str(row.tried)
    return [number, row.target + key, row.dialect, row.why, amounts, row.obstacle or _changes(row)]


def _changes(row: ExplainedTarget) -> str:
    losses = [code if count == 1 else f"{code} × {count}" for code, count in counted(list(row.losses)).items()]
    details = ", ".join(dict.fromkeys(f"{loss.code} {loss.detail}".strip() for loss in row.losses))
    parts = [
        f"sets {', '.join(row.set)}" if row.set else "",
        f"cache breakpoints after {', '.join(row.breakpoints)}" if row.breakpoints else "",
        f"loses {details if len(details) < 200 else ', '.join(losses)}" if losses else "",
    ]
    return "; ".join(filter(None, parts)) or "all of it"


def _dollars(rate: int) -> str:
    """Picodollars per token as dollars per million tokens."""
    return f"{rate / _PER_MILLION:g}"


def _json(row: ExplainedTarget) -> dict[str, object]:
    price = row.price.price.rates if row.price is not None else None
    return {
        "tried": row.tried,
        "target": row.target,
        "provider_key": row.provider_key or None,
        "dialect": row.dialect,
        "why": row.why,
        "price": None
        if price is None
        else {
            name: money(getattr(price, name) * _PER_MILLION // _NANO_IN_PICO)
            for name in ("input", "output", "cached", "cache_write")
        },
        "obstacle": row.obstacle or None,
        "losses": [{"code": loss.code, "detail": loss.detail} for loss in row.losses],
        "breakpoints": list(row.breakpoints),
        "set": dict(row.set),
    }
