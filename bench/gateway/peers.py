"""The gateways that Penstock can be compared with: `scripts/bench-gateway --peers all`.

A row has the packages of a peer, its configuration to forward to the judge's mock, and the command that starts it;
`fetch.py` does the work. Each logs as little as Penstock does here, and keeps connections to the mock open if it can be
configured to. In the texts of a row these placeholders are filled in:

    {folder}          the peer's own folder, .bench/NAME
    {bin}             the folder of the programs in its environment
    {configuration}   the file that the row's configuration is written to
    {relays}          the folder of our own relays, and of files that help a peer to start
    {upstream}        the mock's address, without /v1
    {port}            the port that the peer listens on

A new peer is one row. It must relay the judge's streams completely: every event, the usage if requested, and `[DONE]`.
"""

from typing import NamedTuple

FASTAPI = ("fastapi==0.162.4", "uvicorn==0.54.0", "uvloop==0.23.0", "httptools==0.9.0")
LITELLM_CONFIGURATION = """\
model_list:
  - model_name: gpt-4o-mini
    litellm_params:
      model: openai/gpt-4o-mini
      api_base: {upstream}/v1
      api_key: any
"""
TENSORZERO_CONFIGURATION = """\
[gateway]
observability.enabled = false

[models.mock]
routing = ["mock"]

[models.mock.providers.mock]
type = "openai"
model_name = "gpt-4o-mini"
api_base = "{upstream}/v1"
api_key_location = "none"
"""


class Peer(NamedTuple):
    """How one peer is fetched, configured and started."""

    command: str
    # From PyPI, into an environment of its own. Their versions are pinned; what they need in turn is not.
    packages: tuple[str, ...] = ()
    # The command that compiles it, and the one that prints the compiler's version if that matters.
    build: str = ""
    version: str = ""
    configuration: str = ""
    # The path and the model of requests, if they are not /v1/chat/completions and the model of `judge.py`.
    path: str = ""
    model: str = ""


PEERS = {
    "go": Peer(  # httputil.ReverseProxy
        command="env PORT={port} UPSTREAM={upstream} {folder}/reverse_proxy",
        build="go build -o {folder}/reverse_proxy {relays}/reverse_proxy.go",
        version="go env GOVERSION",
    ),
    "vllm-router": Peer(
        command="{bin}/vllm-router --port {port} --worker-urls {upstream} --policy round_robin --log-level error",
        packages=("vllm-router==0.1.16",),
    ),
    "tensorzero": Peer(
        command="env PORT={port} LD_PRELOAD={folder}/fixed_port.so {bin}/python {relays}/tensorzero_gateway.py "
        "{configuration}",
        packages=("tensorzero==2026.6.0",),
        build="gcc -O2 -shared -fPIC -o {folder}/fixed_port.so {relays}/fixed_port.c -ldl",
        configuration=TENSORZERO_CONFIGURATION,
        path="/openai/v1/chat/completions",
        model="tensorzero::model_name::mock",
    ),
    "bare": Peer(
        command="env UPSTREAM={upstream} {bin}/python {relays}/bare.py {port}",
        packages=("uvloop==0.23.0", "httptools==0.9.0", "msgspec==0.22.0"),
    ),
    "fastapi-aiohttp": Peer(
        command="env UPSTREAM={upstream} {bin}/python -m uvicorn --app-dir {relays} fastapi_aiohttp:app --port {port} "
        "--no-access-log --log-level error",
        packages=(*FASTAPI, "aiohttp==3.14.5"),
    ),
    "fastapi-httpx": Peer(
        command="env UPSTREAM={upstream} {bin}/python -m uvicorn --app-dir {relays} fastapi_httpx:app --port {port} "
        "--no-access-log --log-level error",
        packages=(*FASTAPI, "httpx==0.28.1"),
    ),
    "litellm": Peer(
        command="env LITELLM_LOCAL_MODEL_COST_MAP=True LITELLM_LOG=ERROR LITELLM_MODE=PRODUCTION {bin}/litellm "
        "--config {configuration} --host 127.0.0.1 --port {port} --telemetry False",
        # The newest version whose dependencies could be installed.
        packages=("litellm[proxy]==1.102.4",),
        configuration=LITELLM_CONFIGURATION,
    ),
}
