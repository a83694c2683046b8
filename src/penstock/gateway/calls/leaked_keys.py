"""LeakedKeys: finds API keys that clients wrote into `model`, which happens where somebody mixes up two settings.

The name of a model is logged, booked, counted, traced and shown. So a request with a key in it is refused before any of
that, like one that cannot be parsed. Found are:

- the keys of the configuration (of providers, of clients, of the admin API), in every form that `mask.py` knows;
- what looks like a key of a well-known provider, or of our own.

Names in the configuration (routes and listed models) are never refused.
"""

import re
from collections.abc import Iterator
from itertools import chain

from penstock.gateway.billing.tags import SECRET_NAME
from penstock.gateway.config import Config
from penstock.gateway.mask import Secrets

# Prefixes of keys. Models have some of them too (hf-…, fw-…, xai-…), but then no digits beside letters of both cases.
_KEY = re.compile(
    r"\b(?:sk|gsk|csk)[-_](?=[\w-]*\d)[\w-]{20,}"
    r"|\b(?:pk|rk|xai|hf|fw|r8|pplx|nvapi)[-_](?=[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{20,}"
    r"|\bAIza[\w-]{30,}"
)
# A shorter key is taken for a word where it has no digit: local servers accept any, such as `lm-studio`.
_SHORTEST, _LONG = 8, 16
_DIGIT = re.compile(r"\d")


class LeakedKeys:
    """Finds keys in model names. Belongs to one configuration."""

    def __init__(self, config: Config) -> None:
        listed = ((provider.name, model) for provider in config.providers.values() for model in provider.models)
        self._known = frozenset((*config.routes, *chain.from_iterable((name, f"{by}/{name}") for by, name in listed)))
        self._keys = Secrets(key for key in _keys(config) if _is_telling(key))

    def has_key(self, model: str) -> bool:
        """Whether a model's name has a key in it."""
        if model in self._known:
            return False
        return _KEY.search(model) is not None or bool(self._keys.spans(model))


def _keys(config: Config) -> Iterator[str]:
    """Not every header is a key: some name a deployment, which is a model's name as well."""
    for provider in config.providers.values():
        if provider.api_key is not None:
            yield provider.api_key.reveal()
        for name, value in provider.headers.items():
            if SECRET_NAME.search(name) or _KEY.search(value.reveal()):
                yield value.reveal().rpartition(" ")[2]  # without the scheme
    for secret in (*config.server.keys, *filter(None, [config.admin.token])):
        yield secret.reveal()


def _is_telling(key: str) -> bool:
    return len(key) >= _LONG or (len(key) >= _SHORTEST and _DIGIT.search(key) is not None)
