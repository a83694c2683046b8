"""The gateways that Penstock can be measured beside: `scripts/bench-gateway --peers all`.

A row says what a peer is made of, how it is told to forward to the judge's mock, and how it is started; `fetch.py` does
the work. Each is as quiet as Penstock is here, and keeps connections to the mock open if it can be told to. In the
texts of a row these words are filled in:

    {folder}          the peer's own folder, .bench/NAME
    {bin}             where its environment has its programs
    {configuration}   the file that the row's configuration is written to
    {relays}          the folder of the relays that we wrote, and of what helps a peer to start
    {upstream}        the mock's address, without /v1
    {port}            where the peer is to listen

A new peer is one row. It must relay the judge's streams whole: every event, the usage that was asked for, and `[DONE]`.
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
    """How one peer is fetched, told and started."""

    command: str
    # From PyPI, into an environment of its own. Their versions are pinned; what they need in turn is not.
    packages: tuple[str, ...] = ()
    # What compiles it, and what says the compiler's version if that matters.
    build: str = ""
    version: str = ""
    configuration: str = ""
    # What the judge is to ask for where that is not /v1/chat/completions, or not the model of `judge.py`.
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
        # The newest but for those that want a certifi which could not be had when this was written.
        packages=("litellm[proxy]==1.102.4",),
        configuration=LITELLM_CONFIGURATION,
    ),
}
