"""Writes what is generated from code: pages of docs/, and tables for the web page.

`tests/test_reference.py` fails while a page is not what this would write.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct, structs

from penstock.core.dialects.registry import DIALECTS
from penstock.core.losses import LOSSES
from penstock.core.repairs import FAULTS, NOTICES, REPAIRS, Level, RepairRow
from penstock.core.usage import Tokens
from penstock.error_codes import ERROR_GROUPS
from penstock.gateway.config import json_schema
from penstock.replay.faults import INJECTABLE_FAULTS, FaultSpec, usage
from penstock.serve.client_headers import REQUEST_HEADERS, RESPONSE_HEADERS
from penstock.serve.telemetry.log_lines import AttemptFields, CallLine, MessageLine, log_schema
from tests.translation.scenarios import DIALECTS as PAIRED
from tests.translation.scenarios import SCENARIOS, Scenario

ROOT = Path(__file__).resolve().parent.parent

REPAIRS_PAGE = """\
# Repairs and faults

Providers deviate from the standard in their streams. A deviation that Penstock tolerates is a **repair**: it has a
code, it is counted, and `penstock inspect` and `penstock lint` show where in the bytes it occurs. Harmless
deviations are **notices**: a client that follows the standard gets the same answer without the repair. They are
shown and counted separately. A deviation that Penstock does not tolerate is a **fault**: to continue would mean to
guess what the model generated, so the ending is `failed`.

This page is generated from `src/penstock/core/repairs.py`. `tests/captures/` has a small stream for each code.

## Repairs

{repairs}
## Notices

| where | repairs | notices |
|---|---|---|
| `penstock inspect` | listed under `repairs` | listed under `notices` |
| `penstock inspect --json` | in `repairs`, with `"level": "repair"` | in `repairs`, with `"level": "notice"` |
| `penstock lint` | warnings; errors with `--strict` | notices; never errors |
| metrics | `penstock_repairs_total` | `penstock_notices_total` |
| log, `penstock chat --json`, headers | `repairs`, `x-penstock-repairs` | `notices`, `x-penstock-notices` |
| the ledger and the admin API | in `repairs`, by code | in `repairs`, by code |
| the library | `Repair.level == "repair"` | `Repair.level == "notice"` |

{notices}
## Faults

{faults}
## Endings

| ending | meaning |
|---|---|
| `completed` | every choice that began has its finish reason, and the bytes do not end inside an event |
| `truncated` | the bytes end before that; a `[DONE]` does not replace a finish reason |
| `failed` | the provider reported an error, or its bytes cannot be read |
| `cancelled` | the client disconnected |
| `timed_out` | the provider took too long |

The library's reader reports the first three. The gateway adds the last two.
"""

FAULTS_PAGE = """\
# Injectable faults

A fault breaks a stream on purpose, to show how a client handles it. Faults can be combined in any order: they are
always applied in the order of this page.

`N` is a number of events, without comments. `TIME` is `250ms`, `3s`, `1m` or a number of seconds; a stall can also
be `forever`. The column *Penstock reports* has the ending and the [repairs](repairs.md) of a healthy stream with
this fault alone, and without an argument if it is optional. A fault that depends on the events names
the dialects that can have it. It is not applied to captures of others; `penstock replay` says so.

This page is generated from `src/penstock/replay/faults/table.py` and `content/` beside it.

{faults}"""


REPAIRS_SCRIPT = """\
// @ts-check
// What each repair and each fault means. Generated from `core/repairs.py` by `scripts/reference`.

/** @type {{Record<string, {{ wrong: string, done: string }}>}} */
export const REPAIRS = {repairs};

// The repairs that are harmless deviations of providers.
export const NOTICES = new Set({notices});

/** @type {{Record<string, {{ wrong: string, done: string }}>}} */
export const FAULTS = {faults};
"""


LOSSES_PAGE = """\
# Losses

A client and a provider can use different APIs. What the translation between them drops or approximates is a
**loss**: it has a code, it is counted and it is reported. A request to a provider of the client's own API has no
losses, except for fields that the provider is known to reject.

| where | what |
|---|---|
| the header `x-penstock-losses` | `code=count`, of the losses that were known before the headers were sent |
| log, ledger, admin API, the page | `losses`: all losses of the call, by code |
| metrics | `penstock_losses_total` by provider and code |
| traces | `penstock.losses`: the codes |
| `penstock inspect --for DIALECT` | the losses of a recorded answer for clients of that API |
| the library | `StreamWriter.losses` |

If a call tries several targets, it has the losses of the last one.

## Strict mode

Some losses can change the meaning of a request or an answer. A call is *strict* if the request has the header
`x-penstock-strict: 1`, or if its route, its key or the whole gateway is strict: `strict = true` in `[routes.NAME]`
or `[server]`, or `penstock keys create --strict`. Targets for which the request would have such a loss are then
skipped. If no target is left, the client gets a 400 with the code `translation_loss` that names the losses for
each target. If the *answer* has such a loss, the attempt fails with the same code: before the first content the next
target is tried, after it the stream ends with an error. It does not count as a failure of the provider.

This page is generated from `src/penstock/core/losses.py`.

## The codes

{losses}"""

LOSSES_SCRIPT = """\
// @ts-check
// What each loss means. Generated from `core/losses.py` by `scripts/reference`.

/** @type {{Record<string, {{ meaning: string, lost: string }}>}} */
export const LOSSES = {losses};
"""


LOG_PAGE = """\
# The log

With `log = "json"` in `[server]`, or with `"auto"` if standard error is not a terminal, every line on standard error is
a JSON object. Only mistakes in the configuration at the start are printed as text, because the configuration has not
been read then. A line is about the gateway itself or about a call that has ended: only the latter has a `request_id`.
Lines never have text of requests or answers, and never secrets.

[`reference/log.schema.json`](reference/log.schema.json) is the JSON Schema of a line. The tests check every line that a
gateway writes in them. Every field is always there. Later versions may add fields: ignore those that you do not know.

This page is generated from `src/penstock/serve/telemetry/log_lines.py`.

## Calls

{call}
Each item of `attempts` has:

{attempt}
## The gateway itself

{message}
## Delivery

Lines are written in batches every 50 ms. A regular shutdown (SIGTERM, SIGINT, an error) loses none; a killed process
loses at most the lines of its last 100 ms. If standard error blocks, because a pipe is not read or the disk is full,
calls continue: up to 10,000 lines are queued, further lines are dropped, and a later line says how many. Lines of
several workers do not interleave. The log is not the ledger: use [`penstock ledger`](ledger.md) for sums and for bills.

## Examples

The slowest calls of a log file, and how often each error code occurred:

```console
$ jq -c 'select(.total_s > 30) | [.request_id, .target, .total_s]' penstock.log
$ jq -r 'select(.code) | .code' penstock.log | sort | uniq -c
```
"""


PAIRS_PAGE = """\
# Answers between APIs

Any client can use any provider. This table has one row for each kind of answer. *Providers* are the APIs that can give
such an answer. The other columns say what a client of an API sees of it, whichever of these providers gives it,
streamed or not: the same answer, or what is different, and which [losses](losses.md) are declared.

`tests/translation/test_pairs.py` checks every cell: the client reads exactly this answer, and no other loss occurs.
This page is generated from `tests/translation/scenarios.py`.

{pairs}"""


CLIENTS_PAGE = """\
# What a client sees

Point an OpenAI client at `http://127.0.0.1:8080/v1` (for many clients: the environment variable `OPENAI_BASE_URL`), and
use the name of a route or `provider/model` as the model. The gateway offers `POST /v1/chat/completions`,
`POST /v1/responses`, `POST /v1/embeddings` and `GET /v1/models`, and to clients of Anthropic's API
`POST /v1/messages`: see [anthropic.md](anthropic.md). Other paths, such as `/v1/completions`, are answered with 404.

The tables of headers and error codes on this page are generated from `src/penstock/serve/client_headers.py` and
`src/penstock/error_codes.py`.

## Request headers

{request_headers}
## Response headers

{response_headers}
## Models

`GET /v1/models` lists the routes, and the known models of each configured provider as `provider/model`. It lists only
models that can be called: a provider without its key is left out, a provider that replays captures has only the models
of its captures, and the local model is listed only if it can run. `GET /v1/models/NAME` answers for every name that can
be called, including bare names and names that match a pattern.

## Health checks

They need no key.

| path | answer |
|---|---|
| `/livez`, `/healthz`, `/health` | 200 while the process responds: for a liveness probe. \
A draining gateway is alive, and so is one whose ledger cannot be reached. |
| `/readyz` | 200 while the gateway accepts calls, otherwise 503 with the `status` \
`draining` or `ledger_unavailable`: for a readiness probe or a load balancer. |

`/health/liveliness` and `/health/readiness` are aliases for users of LiteLLM.

## Errors before the answer begins

The response has an HTTP error status and OpenAI's error envelope:

    {{"error": {{"message", "type", "param", "code", "request_id"}}}}

On the paths of Anthropic's API it has that API's envelope, with its types and with the code at the end of the message:

    {{"type": "error", "error": {{"type", "message"}}, "request_id"}}

By then every target of the route has been tried, as far as a retry makes sense. If a provider rejects the request with
a 4xx, the client gets the provider's own status and body, byte for byte, with these changes: the body is decompressed,
the gateway's keys are masked, and of a list of errors only the first is sent. At most 64 KB of the body are read. If it
is larger, or if masking would delay other calls, the client gets OpenAI's envelope with the provider's message, or with
the beginning of its text.

## Errors after the answer has begun

The status has been sent, so the error is the last event of the stream, with the same codes:

    data: {{"error":{{"message":"the provider sent no event for 60 s","type":"upstream_error","param":null,\
"code":"upstream_timeout_idle","request_id":"req_…"}}}}

The body then ends normally, but without `[DONE]` and without a finish reason. Clients report it as follows:

- **openai-python, openai-node, LangChain** raise an error while the stream is read.
- **Vercel AI SDK**: `fullStream` has an `error` part, `onError` is called, and `finishReason` is `error`. Its
  `textStream` ends without an error by design: do not take its end for success.
- **A client that reads server-sent events itself**: the answer is complete if, and only if, `[DONE]` arrived.

On `/v1/messages` the error is the event `error`, and neither `message_delta` nor `message_stop` follows. On
`/v1/responses` the event `error` is followed by `response.failed`, the last event.

While a client waits, the gateway sends heartbeats: comments (`: penstock`), `ping` events on `/v1/messages`, and
further `response.in_progress` events on `/v1/responses`. Clients ignore them.

## Error codes

*Who* names who can correct the error: the **client** (its request or its key), the **operator** of the gateway (its
configuration, keys, limits and machine), the **provider**, or the **gateway** itself.

{errors}"""


def pages() -> dict[Path, str]:
    """Every generated page: its path and its text."""
    levels = {level: {code: row for code, row in REPAIRS.items() if row.level == level} for level in get_args(Level)}
    repairs = REPAIRS_PAGE.format(
        repairs=_table(levels["repair"]), notices=_table(levels["notice"]), faults=_table(FAULTS)
    )
    clients = CLIENTS_PAGE.format(
        request_headers=_headers(REQUEST_HEADERS), response_headers=_headers(RESPONSE_HEADERS), errors=_errors()
    )
    return {
        ROOT / "docs" / "clients.md": clients,
        ROOT / "docs" / "reference" / "repairs.md": repairs,
        ROOT / "docs" / "reference" / "losses.md": LOSSES_PAGE.format(losses=_losses()),
        ROOT / "docs" / "reference" / "faults.md": FAULTS_PAGE.format(faults=_faults()),
        ROOT / "docs" / "reference" / "pairs.md": PAIRS_PAGE.format(pairs=_pairs()),
        ROOT / "docs" / "reference" / "penstock.schema.json": json_schema(),
        ROOT / "docs" / "reference" / "log.schema.json": log_schema(),
        ROOT / "docs" / "log.md": LOG_PAGE.format(
            call=_fields(CallLine), attempt=_fields(AttemptFields), message=_fields(MessageLine)
        ),
        ROOT / "src" / "penstock" / "serve" / "web" / "repairs.js": _script(),
        ROOT / "src" / "penstock" / "serve" / "web" / "losses.js": _losses_script(),
    }


def _pairs() -> str:
    names = {name: DIALECTS[name].title for name in PAIRED}
    lines = [f"| answer | providers | {' | '.join(names.values())} |", "|---|---|" + "---|" * len(names)]
    for answer, scenario in SCENARIOS.items():
        providers = "all" if len(scenario.wires) == len(names) else ", ".join(names[name] for name in scenario.wires)
        cells = [_cell(scenario, client) for client in names]
        lines.append(f"| {answer} | {providers} | {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _cell(scenario: Scenario, client: str) -> str:
    """What a client sees of an answer."""
    differences = []
    for name, value in scenario.clients.get(client, {}).items():
        if isinstance(value, Tokens):
            shown = ", ".join(f"{count} {field}" for field, count in structs.asdict(value).items() if count)
            differences.append(f"usage: {shown}")
        elif name == "calls":
            differences.append("arguments: " + ", ".join(f"`{arguments}`" for _, _, arguments in value))
        else:
            differences.append(f"{name}: {f'`{value}`' if value else 'none'}")
    codes = sorted({f"`{code}`" for code, _ in scenario.losses.get(client, [])})
    return "; ".join(differences + codes) or "the same"


def _script() -> str:
    repairs, faults = (
        json.dumps({code: {"wrong": row.wrong, "done": row.done} for code, row in table.items()}, indent=1)
        for table in (REPAIRS, FAULTS)
    )
    return REPAIRS_SCRIPT.format(repairs=repairs, notices=json.dumps(sorted(NOTICES)), faults=faults)


def _losses_script() -> str:
    rows = {code: {"meaning": row.meaning, "lost": row.lost} for code, row in LOSSES.items()}
    return LOSSES_SCRIPT.format(losses=json.dumps(rows, indent=1))


def _losses() -> str:
    rows = ["| code | what happens | what is lost | why that is acceptable | strict mode |", "|---|---|---|---|---|"]
    rows += [
        f"| `{code}` | {row.meaning} | {row.lost} | {row.acceptable} | {'fails' if row.changes_meaning else ''} |"
        for code, row in LOSSES.items()
    ]
    return "\n".join(rows) + "\n"


def _fields(line: type[Struct]) -> str:
    schema = msgspec.json.schema(line)
    rows = ["| field | type | meaning |", "|---|---|---|"]
    for name, field in schema["$defs"][line.__name__]["properties"].items():
        rows.append(f"| `{name}` | {_type(field)} | {field['description']} |")
    return "\n".join(rows) + "\n"


def _type(schema: dict[str, Any]) -> str:
    """The type of a field, from its JSON Schema."""
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return "array of objects"
    return "object of integers" if schema["type"] == "object" else str(schema["type"])


def _headers(headers: dict[str, str]) -> str:
    rows = ["| header | meaning |", "|---|---|", *(f"| `{name}` | {meaning} |" for name, meaning in headers.items())]
    return "\n".join(rows) + "\n"


def _errors() -> str:
    sections = []
    for title, group in ERROR_GROUPS.items():
        rows = [
            f"### {title}",
            "",
            "| code | status | type | who | what happened | what to do |",
            "|---|--:|---|---|---|---|",
        ]
        for code, row in group.items():
            statuses, types = (
                ", ".join(map(str, row.types)),
                ", ".join(f"`{each}`" for each in dict.fromkeys(row.types.values())),
            )
            rows.append(f"| `{code}` | {statuses} | {types} | {row.responsible} | {row.meaning} | {row.action} |")
        sections.append("\n".join(rows) + "\n")
    return "\n".join(sections)


def _table(defects: dict[str, RepairRow]) -> str:
    rows = ["| code | what is wrong | what is done | why that is safe |", "|---|---|---|---|"]
    rows += [f"| `{code}` | {row.wrong} | {row.done} | {row.safe} |" for code, row in defects.items()]
    return "\n".join(rows) + "\n"


def _results(fault: FaultSpec) -> dict[str, str]:
    """What Penstock reports, and for which dialects."""
    results = dict.fromkeys(form.result for form in fault.forms.values())
    general = {fault.any.result: "any other" if results else "any"} if fault.any is not None else {}
    return general | {
        result: ", ".join(f"`{dialect}`" for dialect, form in fault.forms.items() if form.result == result)
        for result in results
    }


def _faults() -> str:
    sections = []
    for group in dict.fromkeys(row.group for row in INJECTABLE_FAULTS.values()):
        rows = [
            f"## {group.capitalize()}",
            "",
            "| fault | what happens | Penstock reports | dialect |",
            "|---|---|---|---|",
        ]
        rows += [
            f"| `{usage(name)}` | {row.description} | {result} | {dialects} |"
            for name, row in INJECTABLE_FAULTS.items()
            for result, dialects in _results(row).items()
            if row.group == group
        ]
        sections.append("\n".join(rows) + "\n")
    return "\n".join(sections)


if __name__ == "__main__":
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path.relative_to(ROOT))
