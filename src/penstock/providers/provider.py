"""Provider: the settings of a service that answers calls. Timeouts: the time limits of an attempt.

The fields are the keys of `[providers.NAME]` and `[timeouts]` in the configuration. Editors and the JSON Schema show
their descriptions, and the loader checks their bounds. All differences between providers are in these fields.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote

from msgspec import Meta, Struct, structs

from penstock.core.dialects.registry import upstream_dialect
from penstock.providers.secret import Secret

# At most a day: a longer time is probably a mistake, such as milliseconds.
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400)]

# The usual header for the key, as `Bearer KEY`; any other header has the key alone.
KEY_HEADER = "authorization"
# The `auth` of a provider that has a key, or needs none.
KEY = "key"
CredentialForm: TypeAlias = Literal["subscription", "key"]
CostBasis: TypeAlias = Literal["free", "list"]


# Shorter values are not treated as secrets: they may occur anywhere as ordinary words.
_MIN_SECRET = 8
# The placeholder for the model's name in a path; and the separators of path segments, including that of Windows.
_MODEL = "{model}"
_BESIDE = "/../"
_SEPARATOR = re.compile(r"[/\\]")
# The names of query parameters whose values are secrets.
_SECRET_PARAMETER = re.compile("key|token|secret|password|sig|code", re.IGNORECASE)


class Timeouts(Struct, frozen=True, kw_only=True):
    """The time limits of an attempt, in seconds."""

    # Most connections take a tenth of a second; the next target should not wait for one that will fail.
    connect_s: Seconds = 3.0
    """Seconds to connect, including TLS. It usually takes a fraction of one, and the next target can be tried soon."""
    # Reasoning models take long before their first output. Comments and empty events do not count.
    first_event_s: Seconds = 60.0
    """Seconds from the request to the first event of the answer. Raise it for reasoning models."""
    answer_s: Seconds = 600.0
    """Seconds from the request to an answer that is not streamed: most providers send nothing until it is complete."""
    gap_s: Seconds = 60.0
    """Seconds between two events. Comments and empty events do not count, because a provider can send them for
    ever."""
    total_s: Seconds = 900.0
    """Seconds from the request to the end of the answer."""


class OfferedDialect(Struct, frozen=True, kw_only=True):
    """A further API of a provider, beside that of its `dialect`."""

    base_url: str = ""
    """The address of this API, if it is not the provider's base_url."""
    key_header: str = ""
    """The header for the key in this API, if it is another one."""
    path: str = ""
    """The path after base_url; /../ at its beginning removes the last part of base_url. Default: that of the
    dialect."""
    settings: Mapping[str, Any] = MappingProxyType({})
    """What the provider accepts in this API, as in its own settings."""
    required_for: tuple[str, ...] = ()
    """Models that only this API offers; patterns such as o3-pro*."""
    preferred_for: tuple[str, ...] = ()
    """Models that this API serves better, for clients of other APIs than the provider's."""
    only_for: tuple[str, ...] = ("*",)
    """Models that this API offers; patterns. Default: all."""
    not_for: tuple[str, ...] = ()
    """Models that this API does not offer; patterns."""


class ProviderKey(Struct, frozen=True, kw_only=True):
    """One of several keys of a provider, with limits of its own."""

    name: str
    """Its name in the log, the metrics and the admin API: letters, digits, `-`, `_` and `.`."""
    api_key: Secret
    """The key, best as `${NAME}` or `${file:PATH}`."""
    account: str = ""
    """The account at the provider to which it belongs. Default: that of the provider."""
    rpm: Annotated[int, Meta(ge=1)] | None = None
    """The most requests in any 60 seconds."""
    tpm: Annotated[int, Meta(ge=1)] | None = None
    """The most tokens in any 60 seconds. A call reserves its input and the output that it may have (4,096 tokens, or
    what is left, if the client sets no limit); when it has ended, the tokens that it did not use are returned."""
    weight: Annotated[float, Meta(gt=0)] | None = None
    """Its share of the calls, relative to the weights of the other keys. Without weights, keys are used in order: a key
    is used until it is at its limit or cools down."""


class Provider(Struct, frozen=True, kw_only=True):
    """A service that answers calls. `timeouts` is complete: it includes the general ones that the provider leaves out.

    If `model` is set, the provider is a local model and has no `base_url`. `implied` means that the configuration does
    not name it: it is a built-in provider that is always available. `key` is the one of `keys` that an attempt uses;
    then `api_key` is its secret. `client_cost` is set where a call has a credential of the client's own, which then is
    `api_key`.
    """

    set_by_loader: ClassVar = ("name", "implied", "key", "client_cost")
    name: str
    implied: bool = False
    key: ProviderKey | None = None
    client_cost: CostBasis | None = None
    base_url: str
    """The address of its API, without `/chat/completions` or `/messages`. A new provider needs one."""
    dialect: str = "openai_chat"
    """The API that it speaks: `"openai_chat"` (OpenAI chat completions), `"openai_responses"` (OpenAI Responses),
    `"anthropic_messages"` (Anthropic Messages), `"gemini"` (Gemini `generateContent`), `"ollama"` (Ollama `/api/chat`),
    `"cohere"` (Cohere `/v2/chat`) or `"bedrock_converse"` (Amazon Bedrock `ConverseStream`). Clients of each API can
    use it. For a built-in provider with [several APIs](providers.md#providers-with-several-apis), the only one to
    use."""
    dialects: Mapping[str, OfferedDialect] = MappingProxyType({})
    """Further APIs that it offers: see [providers with several APIs](providers.md#providers-with-several-apis)."""
    api_key: Secret | None = None
    """Its key, best as `${NAME}`. Default: the variable that `env` names."""
    keys: tuple[ProviderKey, ...] = ()
    """Several keys instead of `api_key`: see [several keys of a
    provider](provider-keys.md#several-keys-of-a-provider)."""
    account: str = ""
    """A name for the account at the provider to which its key belongs: see
    [accounts](provider-keys.md#accounts-at-the-provider)."""
    client_credentials: Mapping[CredentialForm, CostBasis] = MappingProxyType({})
    """Which [credentials of clients](provider-keys.md#credentials-of-clients) it is called with, and what such calls
    cost: `subscription` (a token of a login) and `key` (a key of the client's own), each `"free"` or `"list"`."""
    env: str = ""
    """The variable that usually holds its key. A built-in provider is available if it is set."""
    url_env: str = ""
    """The variable that usually holds its address. A built-in provider is available if it is set."""
    key_header: str = KEY_HEADER
    """The header for the key. `authorization` sends `Bearer KEY`, any other header sends the key alone."""
    auth: Literal["key", "aws", "google", "azure"] = "key"
    """How requests are authorized: `"key"` with the key; `"aws"`, signed with AWS credentials, see [Amazon
    Bedrock](providers.md#amazon-bedrock); `"google"`, with access tokens of Google, see [Vertex
    AI](gemini.md#vertex-ai); or `"azure"`, with access tokens of Microsoft Entra ID, see [Azure](providers.md#azure). A
    key in the file replaces the `auth` of a built-in provider."""
    profile: str = ""
    """With `auth = "aws"`: the profile of the AWS configuration. Default: the usual chain of credentials."""
    scope: str = ""
    """With `auth = "google"` or `"azure"`: the scope of the access tokens. Default:
    `https://www.googleapis.com/auth/cloud-platform` or `https://cognitiveservices.azure.com/.default`."""
    host_aliases: Mapping[str, str] = MappingProxyType({})
    """Hosts in `base_url` that are replaced, for regions whose host has another form: the global location of Vertex
    AI."""
    headers: Mapping[str, Secret] = MappingProxyType({})
    """Additional request headers. Their values are treated as secrets."""
    forward_headers: tuple[str, ...] = ()
    """Headers of clients that it gets, such as `["x-session-id"]`; no header that may have a credential. Headers that
    belong to the client's API, such as `anthropic-beta`, reach a provider of the same API without this."""
    path: str = ""
    """The path after `base_url`. Default: that of the dialect, such as `/chat/completions` or
    `/models/{model}:streamGenerateContent?alt=sse`. It can contain `{model}` and a query; the value of a parameter such
    as `key` or `token` is masked wherever it would be written. The model name is percent-encoded; a name with `.` or
    `..` as a path segment gets 404 `model_not_found`, because it would change the path."""
    api_version: str = ""
    """The version of its API, where `api_versions` has paths for it: a date for [Azure](providers.md#azure)."""
    api_versions: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    """By a pattern of `api_version`: the paths for that version, by dialect and for `embeddings`. They can contain
    `{api_version}`. A `path` in the file has precedence."""
    embeddings: str = ""
    """The path after `base_url` for `/v1/embeddings`. If it is empty, the provider offers no embeddings and is skipped
    for them."""
    include_usage: bool = True
    """Whether it accepts `stream_options.include_usage`. If so, Penstock always asks for usage. If not, the client's
    `stream_options` is removed from the request: Mistral, for example, answers it with 422, and reports usage
    anyway."""
    settings: Mapping[str, Any] = MappingProxyType({})
    """[What it accepts](providers.md#what-a-provider-accepts), in the words of its dialect; in `models`, the same for
    model names that match a pattern."""
    models: tuple[str, ...] = ()
    """Models to list in `/v1/models`. They can be called [without the provider's
    name](routing.md#how-a-model-name-is-resolved) if no other provider lists them. Models that are not listed can be
    called as `provider/model`."""
    model: str = ""
    """A [local model](local.md), instead of `base_url`: `smollm2`, or the path of a GGUF file, relative to the
    configuration file."""
    # Limits the memory, with enough for four long conversations: a token of the built-in model takes 23 KB.
    context: Annotated[int, Meta(ge=256, le=1_000_000)] = 8_192
    """With `model`: the size of its context in tokens, shared by all slots. A token of `smollm2` takes 23 KB."""
    slots: Annotated[int, Meta(ge=1, le=64)] = 4
    """With `model`: calls that it answers at the same time."""
    queue: Annotated[int, Meta(ge=0, le=10_000)] = 32
    """With `model`: calls that can wait for a slot. Further calls get a 503 with `retry-after`."""
    prices_as: str = ""
    """The provider whose built-in [prices](prices.md) apply, such as `"openai"`, if they do not follow from the
    address."""
    timeouts: Timeouts = Timeouts()
    """Overrides of [`[timeouts]`](reference/configuration.md#timeouts) for this provider."""
    abort: Literal["cancel", "drain"] = "cancel"
    """What happens to an answer whose client disconnects: `"cancel"` stops it at once, and its tokens are estimated;
    `"drain"` reads it to the end, to get the provider's token counts. See [the
    ledger](ledger.md#clients-that-disconnect)."""
    drain_s: Seconds = 60.0
    """With `abort = "drain"`: the maximum number of seconds to read on."""
    insecure: bool = False
    """`true` allows sending the key over `http://` to another machine."""
    replay: str = ""
    """A capture, or a directory of captures, to answer from. The provider is then never called, and needs neither
    address nor key. See [captures](captures.md#a-gateway-without-a-network)."""
    replay_speed: str = "recorded"
    """The speed of the replay: `"recorded"`, a factor such as `"10x"`, or `"max"`."""
    replay_as: str = ""
    """The [provider style](provider-styles.md) in which captures are rewritten, such as `"groq"`."""
    replay_faults: tuple[str, ...] = ()
    """[Faults](reference/faults.md) that break what is played, such as `["cut-after=5", "no-done"]`."""
    zdr: bool = False
    """Whether it retains nothing of requests and answers (zero data retention), by your agreement with it. Routes and
    clients can [require](routing.md#requirements) it."""
    data_collection: Literal["allow", "deny"] = "allow"
    """`"deny"` if it does not collect what it is sent, for training or otherwise, by your agreement with it."""
    region: str = ""
    """Where it processes requests, such as `"eu"`."""
    enabled: bool = True
    """`false` disables a provider that an environment variable would make available."""

    @property
    def embedded(self) -> bool:
        """Whether it is a local model."""
        return bool(self.model)

    def can_name(self, model: str) -> bool:
        """Whether a model's name may be inserted into its paths (guards against path traversal).

        A name with a dot segment may not, however it is encoded: servers and proxies remove the segment before it
        (RFC 3986, section 5.2.4), and the provider's key would be sent to another path.
        """
        if _MODEL not in "".join((self.embeddings, *map(self.full_path, (self.dialect, *self.dialects)))):
            return True
        segments = _SEPARATOR.split(_decoded(model))
        return not any(segment.partition(";")[0] in (".", "..") for segment in segments)

    def dialect_for(self, model: str, client: str) -> str:
        """The dialect in which a model is asked: the one that it requires; else that of the client, if the provider
        offers it for the model; else the one that is preferred for it; else the provider's first one. Without a client,
        the last two are the first one."""
        for name, offer in self.dialects.items():
            if _matches(model, offer.required_for):
                return name
        own = self.dialects.get(client)
        offered = own is not None and _matches(model, own.only_for) and not _matches(model, own.not_for)
        if offered or client == self.dialect:
            return client
        preferred = (name for name, offer in self.dialects.items() if client and _matches(model, offer.preferred_for))
        return next(preferred, self.dialect)

    def full_path(self, dialect: str = "") -> str:
        """The path after `base_url` in one of its dialects: as configured, or that of the dialect."""
        further = self.dialects.get(dialect)
        return (self.path if further is None else further.path) or upstream_dialect(dialect or self.dialect).path

    def url(self, model: str, dialect: str = "") -> str:
        """The URL for requests to a model, in one of its dialects."""
        return _joined(self._address(dialect), _with_model(self.full_path(dialect), model))

    def url_beside(self, path: str, dialect: str, model: str = "") -> str:
        """The URL of another endpoint of the API, whose path is below the same base path and may name the model."""
        base, found, query = self.full_path(dialect).rpartition(upstream_dialect(dialect).path)
        if found and query[:1] in ("", "?"):
            path = base + path + query
        return _joined(self._address(dialect), _with_model(path, model))

    def _address(self, dialect: str) -> str:
        """The base URL of one of its dialects."""
        further = self.dialects.get(dialect)
        return self.base_url if further is None else further.base_url or self.base_url

    def embeddings_url(self, model: str) -> str:
        """The URL for embeddings; only for a provider that has them."""
        return self.base_url + _with_model(self.embeddings, model)

    def settings_for(self, model: str, dialect: str = "") -> dict[str, Any]:
        """The settings for one model: the general ones, and those of every pattern that its name matches, in order."""
        further = self.dialects.get(dialect)
        given = self.settings if further is None else further.settings
        settings = {name: value for name, value in given.items() if name != "models"}
        for pattern, special in given.get("models", {}).items():
            if fnmatchcase(model, pattern):
                settings |= special
        return settings

    def with_key(self, key: ProviderKey) -> "Provider":
        """The provider as it is called with one of its keys."""
        return structs.replace(self, api_key=key.api_key, key=key)

    @property
    def authorized(self) -> bool:
        """Whether the gateway has a credential for it; additional headers count as one."""
        return self.api_key is not None or bool(self.keys or self.headers) or self.auth != KEY

    @property
    def client_only(self) -> bool:
        """Whether it is called with credentials of clients only, because the gateway has none for it."""
        own = self.api_key is not None or self.keys or self.auth != KEY or self.replay
        return bool(self.client_credentials) and not own and self.client_cost is None

    def for_client(self, given: Mapping[str, str], client: str, dialect: str) -> "Provider | None":
        """The provider as it is called in a dialect with the credential of a client; None if it takes none of those
        that are `given`, by header.

        A key must come in the header that the provider has for keys. A bearer token says of no header whose it is, so
        it goes only to a provider that offers the API of the client.
        """
        key_header = self._key_header(dialect)
        spoken = client in (self.dialect, *self.dialects)
        forms: tuple[tuple[CredentialForm, str], ...] = (("key", key_header), ("subscription", KEY_HEADER))
        for form, header in forms:
            if form in self.client_credentials and header in given and (spoken or header != KEY_HEADER):
                further = {name: structs.replace(each, key_header="") for name, each in self.dialects.items()}
                return structs.replace(
                    self,
                    api_key=Secret(given[header]),
                    keys=(),
                    key=None,
                    key_header=header,
                    headers={name: value for name, value in self.headers.items() if name != header},
                    dialects=further,
                    client_cost=self.client_credentials[form],
                )
        return None

    def secrets(self) -> tuple[str, ...]:
        """The values that must not be disclosed: those of additional headers, all API keys, and keys in paths."""
        keys = [key.api_key for key in self.keys]
        if self.api_key is not None and self.api_key not in keys:
            keys.append(self.api_key)
        paths = [self.path, self.embeddings, *(further.path for further in self.dialects.values())]
        in_paths = [
            value
            for path in paths
            for name, value in parse_qsl(path.partition("?")[2])
            if _SECRET_PARAMETER.search(name)
        ]
        secrets = [*(secret.reveal() for secret in (*self.headers.values(), *keys)), *in_paths]
        return tuple(secret for secret in secrets if len(secret) >= _MIN_SECRET)

    def account_identity(self) -> tuple[str, ...]:
        """What tells its account from others at the same address: the name that the configuration gives it, and the
        additional headers. Keys of `keys` without an `account` belong to one account. A single `api_key` without an
        `account` stands for itself, because the next one may be that of another account."""
        own = self.key.account if self.key is not None else ""
        if not (own or self.account) and self.key is None:
            return self.secrets()
        return (*(value.reveal() for value in self.headers.values()), own or self.account)

    def credentials(self, dialect: str = "") -> dict[str, str]:
        """The headers that are sent to this provider only, in one of its dialects: its additional headers, its key."""
        key_header = self._key_header(dialect)
        headers = {name: value.reveal() for name, value in self.headers.items()}
        if self.api_key is not None:
            prefix = "Bearer " if key_header == KEY_HEADER else ""
            headers[key_header] = prefix + self.api_key.reveal()
        return headers

    def _key_header(self, dialect: str) -> str:
        """The header for the key in one of its dialects."""
        further = self.dialects.get(dialect)
        return (further.key_header if further is not None else "") or self.key_header


def _joined(base_url: str, path: str) -> str:
    """The URL of a path below a base URL. A path that begins with `/../` is beside the base URL's last segment."""
    if not path.startswith(_BESIDE):
        return base_url + path
    root = base_url.find("/", base_url.find("//") + 2)
    return (base_url if root < 0 else base_url[: base_url.rfind("/")]) + path.removeprefix("/..")


def _with_model(path: str, model: str) -> str:
    return path.replace(_MODEL, quote(model, safe=""))


def _matches(model: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(model, pattern) for pattern in patterns)


def _decoded(text: str) -> str:
    """Decode percent-encoding repeatedly, until there is none left."""
    while (plain := unquote(text)) != text:
        text = plain
    return text
