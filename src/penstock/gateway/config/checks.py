"""Checks of a single provider, route or key: names, headers, paths, secrets.

Each check takes the values of a table and reports errors to `Problems`. No message shows a secret.
"""

import re
from collections.abc import Mapping
from typing import Any, get_args

import msgspec

from penstock.core.dialects.parameters import parameters_of
from penstock.core.dialects.registry import DEFAULT_DIALECT, DIALECTS, find_dialect, providers_speak
from penstock.core.suggest import suggest
from penstock.gateway.config.addresses import check_host_name, parse_url
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.toml import Path
from penstock.providers.provider import KEY_HEADER, CredentialForm
from penstock.providers.secret import Secret

# In characters. Shorter ones can be guessed, or come from a mistake such as a prefix before an empty variable.
MIN_KEY = 8
MIN_TOKEN = 16

_KEY = re.compile(r"[!-~]+")
_PROVIDER_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Upper case only, so that a key that was put here by mistake is refused, and not shown in a later message.
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
# Names, IPv4 addresses and IPv6 addresses without brackets, with wildcards.
_MEDIA_HOST = re.compile(r"[A-Za-z0-9*?._-]+|[0-9A-Fa-f:.]+")
_PATH = re.compile(r"/(?:[!-~]*)")
_BRACE = re.compile(r"[{}]")
# Headers of the connection, or headers that Penstock sets in every request.
_RESERVED_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "expect", "host", "keep-alive"}
    | {"proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"}
)
_REPLAY_KEYS = frozenset({"replay_as", "replay_faults", "replay_speed"})
# Fields that the targets of a route or the client's request determine.
# The members with the conversation.
_CONVERSATION = ("input", "contents", "system", "tools", "toolConfig", "instructions")
_RESERVED_FIELDS = {
    "model": "the targets say which model",
    "messages": "they are the client's",
    "stream": "it is the client's to ask",
    "stream_options": "include_usage of the provider decides whether usage is requested",
}


# What belongs to one connection, besides the reserved headers.
_OF_CONNECTIONS = ("forwarded", "via")
_CREDENTIAL = re.compile("auth|cookie|key|token|secret|password|session-jwt")


def check_provider(name: str, given: Mapping[str, Any], problems: Problems) -> None:
    """Check a provider's table, except the address and the source of the key."""
    path: Path = ("providers", name)
    further = given.get("dialects", {}).values()
    if not _PROVIDER_NAME.fullmatch(name):
        problems.error(path, "a provider's name is made of letters, digits, '-', '_' and '.'")
    dialect = given.get("dialect", DEFAULT_DIALECT)
    if is_dialect(dialect, (*path, "dialect"), problems) and given.get("settings"):
        _check_settings(given["settings"], dialect, (*path, "settings"), problems)
    _check_dialects(given, dialect, path, problems)
    for key in ("env", "url_env"):
        if key in given and not _VARIABLE_NAME.fullmatch(given[key]):
            problems.error((*path, key), "must be the name of a variable, in capitals, such as ACME_API_KEY")
    if "key_header" in given and not _HEADER_NAME.fullmatch(given["key_header"]):
        problems.error((*path, "key_header"), "must be the name of a header, such as api-key")
    for index, header in enumerate(given.get("forward_headers", ())):
        if isinstance(header, str) and (wrong := _not_forwarded(header)):
            problems.error((*path, "forward_headers", index), wrong)
    if "prices_as" in given and not is_name(given["prices_as"]):
        problems.error((*path, "prices_as"), "must be a name, such as openai")
    for key in ("path", "embeddings"):
        if given.get(key):
            _check_path(given[key], (*path, key), problems)
    for pattern, paths in given.get("api_versions", {}).items():
        for use in paths.keys() - {"embeddings"}:
            is_dialect(use, (*path, "api_versions", pattern, use), problems)
    for index, model in enumerate(given.get("models", ())):
        if isinstance(model, str) and not is_name(model):
            problems.error((*path, "models", index), "must be a model's name")
    if given.get("replay"):
        from penstock.gateway.config.replay_checks import check_replay  # noqa: PLC0415 - few providers replay

        check_replay(given, path, problems)
    elif "replay" not in given:
        for key in sorted(_REPLAY_KEYS.intersection(given)):
            problems.error((*path, key), "says how captures are played; name them with replay")
    _check_headers(given, path, problems)
    key_headers = [each.get("key_header") or given.get("key_header", KEY_HEADER) for each in (given, *further)]
    forms = given.get("client_credentials", {})
    for form in forms.keys() - get_args(CredentialForm):
        problems.error((*path, "client_credentials", form), "is no form of credentials: write subscription, or key")
    if len(forms) > 1 and KEY_HEADER in map(str.lower, key_headers):
        message = "cannot have both where keys are sent in authorization, too: write [providers.NAME] twice"
        problems.error((*path, "client_credentials"), message)
    _check_key(given.get("api_key"), (*path, "api_key"), problems)
    _check_provider_keys(given, path, problems)


def is_dialect(name: str, path: Path, problems: Problems) -> bool:
    """Whether there is a dialect of that name; otherwise an error is reported."""
    if name in DIALECTS and DIALECTS[name].upstream is not None:  # `providers_speak` would import all of them
        return True
    known = providers_speak()
    hint = suggest(name, known) or f"; there are {', '.join(known)}"
    problems.error(path, f"unknown dialect{hint}")
    return False


def check_keys(keys: tuple[object, ...], problems: Problems) -> None:
    """Check the keys of clients."""
    for index, key in enumerate(keys):
        path: Path = ("server", "keys", index)
        if not isinstance(key, Secret):
            continue
        _check_key(key, path, problems)
        if len(key.reveal()) < MIN_KEY:
            problems.error(path, f"is shorter than {MIN_KEY} characters; try: openssl rand -hex 24")
        if key in keys[:index]:
            problems.warn(path, "is listed twice")


def check_hosts(section: str, hosts: tuple[str, ...], problems: Problems) -> None:
    """Check the host names under which requests are accepted."""
    for index, host in enumerate(hosts):
        try:
            check_host_name(host)
        except ValueError:
            message = "must be the name of a host, such as gateway.internal: no scheme, no port and no *"
            problems.error((section, "hosts", index), message)


def check_media_hosts(hosts: tuple[object, ...], problems: Problems) -> None:
    """Check the hosts, or patterns of hosts, from which media are fetched."""
    for index, host in enumerate(hosts):
        if isinstance(host, str) and not _MEDIA_HOST.fullmatch(host):
            message = "must be a host or a pattern, such as *.example.com: no scheme, no port and no path"
            problems.error(("server", "media_hosts", index), message)


def check_token(token: Secret, keys: tuple[object, ...], problems: Problems) -> None:
    """Check the token of the admin API."""
    path: Path = ("admin", "token")
    _check_key(token, path, problems)
    if len(token.reveal()) < MIN_TOKEN:
        problems.error(path, f"is shorter than {MIN_TOKEN} characters; try: openssl rand -hex 24")
    if token in keys:
        problems.error(path, "is a client's key too, and must be another one: clients may not make keys")


def key_problem(text: str) -> str | None:
    """Why a text cannot be a key; None if it can."""
    if text.lower().startswith("bearer "):
        return "begins with 'Bearer ', which is added to it; leave it off"
    return None if _KEY.fullmatch(text) else "has a space, or a character that no key has"


def check_set(fields: Mapping[str, object], path: Path, problems: Problems) -> None:
    """Check the request fields that a route overrides."""
    for field in fields:
        if field in _RESERVED_FIELDS:
            problems.error((*path, field), f"cannot be set by a route: {_RESERVED_FIELDS[field]}")


def is_header_name(text: str) -> bool:
    """Whether a text can be the name of a header."""
    return _HEADER_NAME.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a text can be the name of a model or route: not empty, printable, without spaces at its ends."""
    return bool(text) and text == text.strip() and text.isprintable()


def _check_path(text: str, path: Path, problems: Problems) -> None:
    if not text.startswith("/"):
        problems.error(path, "must begin with /")
    elif not _PATH.fullmatch(text) or "#" in text:
        problems.error(path, "has a space, a # or a character that no URL has")
    elif _BRACE.search(text.replace("{model}", "")):
        problems.error(path, "has braces in it; only {model} is filled in")


def _check_dialects(given: Mapping[str, Any], first: str, path: Path, problems: Problems) -> None:
    """Check the further dialects of a provider."""
    for name, offer in given.get("dialects", {}).items():
        place: Path = (*path, "dialects", name)
        if not is_dialect(name, place, problems):
            continue
        if name == first:
            problems.error(place, "is the dialect of the provider already; its path and settings are keys of its own")
        elif given.get("replay"):
            problems.error(place, "a replay has one dialect; leave it out, or write a provider for each")
        _check_settings(offer.get("settings", {}), name, (*place, "settings"), problems)
        if offer.get("path"):
            _check_path(offer["path"], (*place, "path"), problems)
        if "key_header" in offer and not _HEADER_NAME.fullmatch(offer["key_header"]):
            problems.error((*place, "key_header"), "must be the name of a header, such as api-key")
        try:
            parse_url(offer.get("base_url", "https://unset"))
        except ValueError as error:
            problems.error((*place, "base_url"), str(error))


def _check_settings(given: Mapping[str, Any], dialect: str, path: Path, problems: Problems) -> None:
    """The capabilities of a provider, by the names that its dialect gives them."""
    kind = find_dialect(dialect).settings
    known = kind.__struct_fields__ if kind is not None else ()
    for pattern, special in _settings_by_model(given).items():
        if isinstance(special, Mapping):
            _check_settings(special, dialect, (*path, "models", pattern), problems)
        else:
            problems.error((*path, "models", pattern), "must be a table of settings")
    given = {name: value for name, value in given.items() if name != "models"}
    for name in given:
        if name not in known:
            listed = f"; there are {', '.join(known)}" if known else f"; the dialect {dialect} has none"
            problems.error((*path, name), f"unknown setting{suggest(name, known) or listed}")
            return
    if kind is not None:
        try:
            parameters = parameters_of(given)
            for field in parameters.names() if parameters is not None else ():
                if field in _RESERVED_FIELDS or field in _CONVERSATION:
                    problems.error(path, f"cannot change {field!r} of the request: it is the client's, or the route's")
            msgspec.convert(dict(given), kind)
        except msgspec.ValidationError as error:
            problems.error(path, str(error))


def _settings_by_model(given: Mapping[str, Any]) -> Mapping[str, Any]:
    models = given.get("models")
    return models if isinstance(models, Mapping) else {}


def _not_forwarded(header: str) -> str:
    """Why a header of clients cannot be forwarded; empty if it can."""
    folded = header.lower()
    if not _HEADER_NAME.fullmatch(header):
        return "must be the name of a header, such as x-session-id"
    if folded in _RESERVED_HEADERS or folded in _OF_CONNECTIONS:
        return "is a header of the connection, which Penstock sets itself"
    if folded.startswith("x-penstock-") or _CREDENTIAL.search(folded):
        return "may have a credential of the client, which no provider gets; see client_credentials for those that may"
    return ""


def _check_headers(given: Mapping[str, Any], path: Path, problems: Problems) -> None:
    seen: set[str] = set()
    for name in given.get("headers", {}):
        place = (*path, "headers", name)
        folded = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            problems.error(place, "is not the name of a header")
        elif folded in _RESERVED_HEADERS:
            problems.error(place, "is a header that Penstock sets itself")
        elif folded in seen:
            problems.error(place, "is listed twice; names of headers are case-insensitive")
        seen.add(folded)


def _check_provider_keys(given: Mapping[str, Any], path: Path, problems: Problems) -> None:
    """Check the keys of a provider that has several."""
    keys = [key if isinstance(key, Mapping) else {} for key in given.get("keys", ())]
    if keys and "api_key" in given:
        problems.error((*path, "api_key"), "is one key, and keys has several; write it as one of them")
    for index, key in enumerate(keys):
        place: Path = (*path, "keys", index)
        for needed in ("name", "api_key"):
            if needed not in key and (*place, needed) not in problems.document.lines:
                problems.error(place, f"needs {'a name' if needed == 'name' else 'an api_key'}")
        if "name" in key and not _PROVIDER_NAME.fullmatch(key["name"]):
            problems.error((*place, "name"), "must be made of letters, digits, '-', '_' and '.'")
        elif key.get("name") in [other.get("name") for other in keys[:index]]:
            problems.error((*place, "name"), "is the name of another key of this provider")
        _check_key(key.get("api_key"), (*place, "api_key"), problems)
        if "api_key" in key and key["api_key"] in [other.get("api_key") for other in keys[:index]]:
            problems.error((*place, "api_key"), "is another key of this provider already; limits are for one each")
    if len({"weight" in key for key in keys}) > 1:
        problems.error((*path, "keys"), "either all keys have a weight, or none")


def _check_key(secret: object, path: Path, problems: Problems) -> None:
    if isinstance(secret, Secret) and (wrong := key_problem(secret.reveal())):
        problems.error(path, wrong)
