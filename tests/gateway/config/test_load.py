"""Loading a configuration: the file, the built-in providers and the environment together."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from penstock.errors import UnknownTargetError
from penstock.gateway.config import Config, Limits, Retries, Secret, Server, Timeouts, default_file, load
from penstock.gateway.config.addresses import Address

GROQ = {"GROQ_API_KEY": "gsk-0123456789"}
FAST = '[routes.fast]\ntargets = ["groq/a"]\n'
ACME = '[providers.acme]\nbase_url = "https://acme.example/v1/"\n'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "penstock.toml"


def read(path: Path, text: str, env: Mapping[str, str] = GROQ) -> Config:
    path.write_text(text, encoding="utf-8")
    return load(path, env)


def remote(config: Config) -> list[str]:
    """The providers, without the model on this machine, which is always there."""
    return [name for name, provider in config.providers.items() if not provider.embedded]


def messages(config: Config) -> list[str]:
    """The warnings, without the name of the file."""
    return [str(warning).removeprefix(f"{config.source}:").strip() for warning in config.warnings]


# The environment alone


def test_each_provider_whose_key_is_set_is_there() -> None:
    config = load(None, {**GROQ, "XAI_API_KEY": "xai-1", "MISTRAL_API_KEY": "", "PATH": "/bin"})
    assert remote(config) == ["groq", "xai"]
    assert config.source == "environment"
    assert config.warnings == ()
    target = config.target("groq/llama-3.3-70b-versatile")
    assert target.provider.url(target.model) == "https://api.groq.com/openai/v1/chat/completions"
    assert target.provider.credentials() == {"authorization": "Bearer gsk-0123456789"}


def test_all_else_has_its_default() -> None:
    config = load(None, GROQ)
    assert (config.server, config.timeouts) == (Server(), Timeouts())
    assert (config.limits, config.retries) == (Limits(), Retries())
    assert config.server.address == ("127.0.0.1", 8080)
    assert not config.routes


def test_without_any_provider_it_says_what_to_do() -> None:
    config = load(None, {})
    assert not remote(config)
    (reported,) = messages(config)
    assert reported.startswith(
        "there is no provider but the model on this machine: set the key of one, such as OPENAI_API"
    )
    assert reported.endswith("or write [providers.NAME]")


def test_white_space_around_a_key_does_not_count() -> None:
    assert load(None, {"GROQ_API_KEY": " gsk-1\n"}).providers["groq"].api_key == Secret("gsk-1")


def test_a_provider_that_lacks_its_address_is_left_out() -> None:
    config = load(None, {**GROQ, "AZURE_OPENAI_API_KEY": "azure-key"})
    assert remote(config) == ["groq"]
    assert messages(config) == [
        "providers.azure.base_url: the variable AZURE_OPENAI_ENDPOINT is not set, or empty, so azure is left out"
    ]


def test_azure_has_its_own_address_and_header() -> None:
    env = {"AZURE_OPENAI_API_KEY": "azure-key", "AZURE_OPENAI_ENDPOINT": "https://me.openai.azure.com/"}
    target = load(None, env).target("azure/my-deployment")
    assert target.provider.url(target.model) == "https://me.openai.azure.com/openai/v1/chat/completions"
    assert target.provider.credentials() == {"api-key": "azure-key"}


ADDRESSES: dict[str, str] = {
    "box": "http://box:11434/v1",
    "box:1234": "http://box:1234/v1",
    ":1234": "http://127.0.0.1:1234/v1",
    "0.0.0.0": "http://127.0.0.1:11434/v1",
    "0.0.0.0:1234": "http://127.0.0.1:1234/v1",
    "[::]:1234": "http://127.0.0.1:1234/v1",
    "[fe80::1]:1234": "http://[fe80::1]:1234/v1",
    "::1": "http://[::1]:11434/v1",
    "http://box": "http://box/v1",
    "https://box:1234/": "https://box:1234/v1",
    "https://box/models/v1": "https://box/models/v1",
    "https://box/models": "https://box/models/v1",
}


@pytest.mark.parametrize(("address", "url"), ADDRESSES.items())
def test_an_address_may_be_written_as_its_server_takes_it(address: str, url: str) -> None:
    provider = load(None, {"OLLAMA_HOST": address}).providers["ollama"]
    assert provider.base_url == url
    assert provider.api_key is None


# Models on this machine


def test_a_model_on_this_machine_is_always_there(path: Path) -> None:
    config = load(None, GROQ)
    local = config.providers["local"]
    assert (local.embedded, local.implied, local.models) == (True, True, ("smollm2",))
    assert not config.local_only
    assert load(None, {}).local_only
    assert not read(path, "[providers.local]").providers["local"].implied


def test_a_file_of_ones_own_gives_the_model_its_name(path: Path) -> None:
    (path.parent / "Tiny-1B.Q4.gguf").touch()
    config = read(path, '[providers.local]\nmodel = "Tiny-1B.Q4.gguf"\nslots = 2\ncontext = 512')
    local = config.providers["local"]
    assert (local.model, local.models) == (str(path.parent / "Tiny-1B.Q4.gguf"), ("Tiny-1B.Q4",))
    assert (local.slots, local.context, local.queue) == (2, 512, 32)
    assert config.warnings == ()
    assert config.route("local/Tiny-1B.Q4") is not None
    assert config.route("local/smollm2") is None


def test_it_may_have_another_name_and_there_may_be_several(path: Path) -> None:
    (path.parent / "big.gguf").touch()
    text = '[providers.desk]\nmodel = "big.gguf"\nmodels = ["qwen"]\n[routes.any]\ntargets = ["groq/a", "desk/qwen"]'
    config = read(path, text)
    assert config.providers["desk"].models == ("qwen",)
    assert config.providers["local"].model == "smollm2"
    assert [target.name for target in config.routes["any"].targets] == ["groq/a", "desk/qwen"]


def test_a_file_that_is_not_there_is_reported_and_no_reason_to_stop(path: Path) -> None:
    config = read(path, '[providers.local]\nmodel = "missing.gguf"')
    assert messages(config) == ["2: providers.local.model: there is no such file, so it cannot answer"]


def test_a_server_may_have_the_name_of_the_built_in_model(path: Path) -> None:
    local = read(path, '[providers.local]\nbase_url = "http://127.0.0.1:1234/v1"').providers["local"]
    assert (local.embedded, local.base_url) == (False, "http://127.0.0.1:1234/v1")


# Providers


def test_a_new_name_adds_one(path: Path) -> None:
    config = read(path, ACME + 'api_key = "${A}-${B:-b}$$"', {**GROQ, "A": "a"})
    acme = config.providers["acme"]
    assert set(remote(config)) == {"acme", "groq"}
    assert acme.base_url == "https://acme.example/v1"
    assert acme.api_key == Secret("a-b$")
    assert acme.api_key.source == "A, B"


def test_a_built_in_is_changed_only_in_what_is_given(path: Path) -> None:
    groq = read(path, '[providers.groq]\nbase_url = "http://127.0.0.1:9000"').providers["groq"]
    assert groq.base_url == "http://127.0.0.1:9000"
    assert groq.api_key == Secret(GROQ["GROQ_API_KEY"])
    assert groq.models


def test_a_key_in_the_file_goes_over_the_environment(path: Path) -> None:
    groq = read(path, '[providers.groq]\napi_key = "another-key"').providers["groq"]
    assert groq.api_key == Secret("another-key")
    assert groq.api_key.source == str(path)


def test_a_provider_may_be_left_out(path: Path) -> None:
    assert not remote(read(path, "[providers.groq]\nenabled = false"))
    assert not read(path, "[providers.groq]\nenabled = false\n[providers.local]\nenabled = false").providers


def test_one_that_no_one_needs_may_lack_its_key(path: Path) -> None:
    text = '[routes.fast]\ntargets = ["groq/a"]\n' + ACME + 'api_key = "${ACME_KEY}"\n[providers.xai]\nmodels = ["a"]'
    config = read(path, text)
    assert remote(config) == ["groq"]
    assert messages(config) == [
        "5: providers.acme.api_key: the variable ACME_KEY is not set, or empty, so acme is left out",
        "6: providers.xai: the variable XAI_API_KEY is not set, or empty, so xai is left out",
    ]


NO_KEY: dict[str, str] = {
    "no word of a key": ACME,
    "a built-in that was moved": '[providers.xai]\nbase_url = "https://proxy.example"',
    "a server of one's own": "[providers.vllm]",
    "the same, elsewhere and in the open": '[providers.vllm]\nbase_url = "http://10.0.0.7:8000/v1"',
}


@pytest.mark.parametrize("text", NO_KEY.values(), ids=NO_KEY)
def test_some_need_no_key(text: str, path: Path) -> None:
    config = read(path, text, {})
    (name,) = remote(config)
    assert config.providers[name].credentials() == {}


def test_a_key_may_go_in_the_open_where_that_is_wanted(path: Path) -> None:
    text = '[providers.acme]\nbase_url = "http://10.0.0.7/v1"\napi_key = "abc"\ninsecure = true'
    assert read(path, text).providers["acme"].credentials() == {"authorization": "Bearer abc"}


def test_headers_are_sent_beside_the_key(path: Path) -> None:
    text = ACME + 'api_key = "abc"\nkey_header = "X-Key"\nheaders = {X-Team = "${TEAM:-red team}"}'
    assert read(path, text).providers["acme"].credentials() == {"x-key": "abc", "x-team": "red team"}


def test_a_path_may_hold_the_model_and_a_query(path: Path) -> None:
    acme = read(path, ACME + 'path = "/d/{model}/chat?v=1"').providers["acme"]
    assert acme.url("a/b c?d") == "https://acme.example/v1/d/a%2Fb%20c%3Fd/chat?v=1"


def test_timeouts_are_complete(path: Path) -> None:
    text = "[timeouts]\ngap_s = 7\n[providers.groq.timeouts]\nconnect_s = 1\n"
    config = read(path, text + '[routes.slow]\ntargets = ["groq/a"]\ntimeouts.total_s = 99')
    assert config.timeouts == Timeouts(gap_s=7)
    assert config.target("groq/a").timeouts == Timeouts(gap_s=7, connect_s=1)
    assert config.routes["slow"].targets[0].timeouts == Timeouts(gap_s=7, connect_s=1, total_s=99)


# Routes


def test_targets_stand_in_their_order(path: Path) -> None:
    config = read(path, ACME + '[routes."gpt 4"]\ntargets = ["groq/a/b", {target = "acme/c"}]')
    route = config.route("gpt 4")
    assert route is not None
    assert [target.name for target in route.targets] == ["groq/a/b", "acme/c"]
    assert [target.model for target in route.targets] == ["a/b", "c"]
    assert not route.weighted
    assert route.max_event == Limits().max_event


def test_targets_may_have_weights(path: Path) -> None:
    text = '[[routes.a.targets]]\ntarget = "groq/a"\nweight = 3\n[[routes.a.targets]]\ntarget = "groq/b"\nweight = 0.5'
    route = read(path, text).routes["a"]
    assert route.weighted
    assert [target.weight for target in route.targets] == [3, 0.5]


def test_a_route_may_override_the_request(path: Path) -> None:
    text = '[routes.fast.set]\ntemperature = 0\nstop = ["$$", "${X:-y}"]\nnested = {a = [true, 1.5]}'
    route = read(path, f"{FAST}max_event = 5000\n{text}").routes["fast"]
    assert dict(route.set) == {"temperature": 0, "stop": ["$", "y"], "nested": {"a": [True, 1.5]}}
    assert route.max_event == 5000


def test_any_model_of_a_provider_is_a_route_of_its_own(path: Path) -> None:
    config = read(path, FAST + "[limits]\nmax_event = 5000")
    route = config.route("groq/whatever/it-is")
    assert route is not None
    assert (route.name, route.max_event, route.weighted) == ("groq/whatever/it-is", 5000, False)
    assert [target.name for target in route.targets] == ["groq/whatever/it-is"]
    assert [config.route(name) for name in ("", "groq", "groq/", "/a", "xai/a", "Fast")] == [None] * 6
    with pytest.raises(UnknownTargetError, match="no provider answers to 'xai/a'"):
        config.target("xai/a")


def test_only_routes_means_only_routes(path: Path) -> None:
    config = read(path, FAST + "[server]\nonly_routes = true")
    assert config.route("groq/a") is None
    assert config.route("fast") is not None
    assert config.models() == ("fast",)


def test_only_routes_without_routes_is_reported(path: Path) -> None:
    config = read(path, "[server]\nonly_routes = true")
    assert messages(config) == ["2: server.only_routes: there are no routes, so nothing can be called"]


def test_models_are_routes_first(path: Path) -> None:
    text = '[routes."groq/b"]\ntargets = ["groq/a"]\n[providers.groq]\nmodels = ["a", "b"]'
    assert read(path, text).models() == ("groq/b", "groq/a", "local/smollm2")


def test_a_route_that_hides_a_model_is_reported(path: Path) -> None:
    text = '[routes."groq/a"]\ntargets = ["groq/b"]\n[routes."meta/a"]\ntargets = ["groq/b"]'
    config = read(path, text)
    assert messages(config) == [
        "1: routes.\"groq/a\": hides the model 'a' of the provider 'groq', which is called by the same name"
    ]
    route = config.route("groq/a")
    assert route is not None
    assert route.targets[0].model == "b"


# Server


def test_a_number_may_come_from_a_variable(path: Path) -> None:
    text = '[server]\nworkers = "${W}"\nonly_routes = "${O:-false}"\nlisten = "127.0.0.1:${PORT:-1}"\n'
    config = read(path, text + '[timeouts]\ngap_s = "${GAP:-2}"', {**GROQ, "W": "3", "PORT": "0"})
    assert (config.server.workers, config.server.only_routes) == (3, False)
    assert config.server.address == ("127.0.0.1", 0)
    assert config.timeouts.gap_s == 2


LISTEN: dict[str, tuple[str, int, bool]] = {
    "127.0.0.1:8080": ("127.0.0.1", 8080, True),
    "127.8.8.8:80": ("127.8.8.8", 80, True),
    "localhost:0": ("localhost", 0, True),
    "[::1]:8080": ("::1", 8080, True),
    "0.0.0.0:8080": ("0.0.0.0", 8080, False),
    "[::]:8080": ("::", 8080, False),
    "10.0.0.7:65535": ("10.0.0.7", 65535, False),
    "gateway:8080": ("gateway", 8080, False),
}


@pytest.mark.parametrize(("listen", "expected"), LISTEN.items())
def test_listens_on(listen: str, expected: tuple[str, int, bool], path: Path) -> None:
    address = read(path, f'[server]\nkeys = ["a-good-key"]\nlisten = "{listen}"').server.address
    assert (address.host, address.port, address.local) == expected
    assert str(address) == listen


def test_host_port_and_workers_go_over_the_file(path: Path) -> None:
    path.write_text('[server]\nlisten = "0.0.0.0:1"\nworkers = 2')
    server = load(path, GROQ, host="::1", port=9, workers=4).server
    assert (server.listen, server.address, server.workers) == ("[::1]:9", Address("::1", 9), 4)
    assert load(None, GROQ, port=9).server.listen == "127.0.0.1:9"


def test_a_key_that_is_there_twice_is_reported(path: Path) -> None:
    config = read(path, '[server]\nkeys = ["a-good-key", "another-key",\n"a-good-key"]')
    assert messages(config) == ["3: server.keys[2]: is listed twice"]


# The snapshot

TEXT = '[server]\nkeys = ["${K}"]\n' + ACME + 'api_key = "${K}"\nheaders = {x-k = "${K}"}'
KEY = "a-very-secret-key"


def test_it_shows_no_secret(path: Path) -> None:
    config = read(path, TEXT, {"K": KEY})
    assert KEY not in f"{config}{config!r}{config.providers}"


def test_it_is_not_encoded(path: Path) -> None:
    config = read(path, TEXT, {"K": KEY})
    for part in (config, config.server, config.providers["acme"]):
        with pytest.raises(TypeError):
            msgspec.json.encode(part)
        assert KEY.encode() not in msgspec.json.encode(part, enc_hook=str)


def test_it_does_not_change(path: Path) -> None:
    config = read(path, TEXT, {"K": KEY})
    with pytest.raises(AttributeError):
        config.source = "x"  # type: ignore[misc]
    with pytest.raises(TypeError):
        config.providers["x"] = config.providers["acme"]  # type: ignore[index]
    with pytest.raises(TypeError):
        config.providers["acme"].headers["x"] = Secret("x")  # type: ignore[index]


def test_the_file_of_the_current_directory_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert default_file() is None
    Path("penstock.toml").touch()
    assert default_file() == Path("penstock.toml")


@pytest.mark.parametrize(
    ("key", "url"),
    [
        ("postgres", "postgresql://me:secret@host:5432/db?sslmode=require"),
        ("postgres", "postgres://host"),
        ("postgres", "postgresql:///db?host=/run/postgresql"),
        ("postgres", "postgresql://me:a%2Fb@one:5432,[::1]:5433,three/db"),
        ("redis", "redis://localhost"),
        ("redis", "rediss://:secret@[::1]:6380/3?ssl_cert_reqs=none"),
        ("redis", "unix:///run/redis.sock?db=1"),
        ("redis", "unix://:secret@/run/redis.sock"),
    ],
)
def test_a_url_of_the_ledger_that_its_driver_takes(tmp_path: Path, key: str, url: str) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text(f'[ledger]\n{key} = "{url}"\n')
    found = getattr(load(path, {}).ledger, key)
    assert found == Secret(url)
