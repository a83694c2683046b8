"""LeakedKeys: finds API keys in the `model` of requests. Users put them there when they mix up two settings.

A model's name is logged, stored in the ledger, counted in metrics, traced and shown. So a request with a key in it is
refused before any of that, like a request that cannot be parsed. It finds:

- the keys of the configuration (of providers, of clients, of the admin API), in every form that `mask.py` knows;
- strings that look like a key of a well-known provider, or like one of Penstock's own.

Names in the configuration (routes and listed models) are never refused.
"""

import re
from collections.abc import Iterator
from itertools import chain

from penstock.gateway.config import Config
from penstock.gateway.mask import SECRET_NAME, Secrets

# Prefixes of keys. Some models have such a prefix, too (hf-…, fw-…, xai-…), but not both digits and letters of both
# cases.
_KEY = re.compile(
    r"\b(?:sk|gsk|csk)[-_](?=[\w-]*\d)[\w-]{20,}"
    r"|\b(?:pk|rk|xai|hf|fw|r8|pplx|nvapi)[-_](?=[\w-]*\d)(?=[\w-]*[a-z])(?=[\w-]*[A-Z])[\w-]{20,}"
    r"|\bAIza[\w-]{30,}"
)
# A shorter key without a digit is regarded as a word: local servers accept any key, such as `lm-studio`.
_SHORTEST, _LONG = 8, 16
_DIGIT = re.compile(r"\d")


class LeakedKeys:
    """Finds the keys of one configuration in model names."""

    def __init__(self, config: Config) -> None:
        listed = ((provider.name, model) for provider in config.providers.values() for model in provider.models)
        self._known = frozenset((*config.routes, *chain.from_iterable((name, f"{by}/{name}") for by, name in listed)))
        self._keys = Secrets(key for key in _keys(config) if _is_telling(key))

    def has_key(self, model: str) -> bool:
        """Whether a model's name contains a key."""
        if model in self._known:
            return False
        return _KEY.search(model) is not None or bool(self._keys.spans(model))


def _keys(config: Config) -> Iterator[str]:
    """The keys of the configuration.

    Not every header is a key: some name a deployment, which is also a model's name.
    """
    for provider in config.providers.values():
        for secret in (*filter(None, [provider.api_key]), *(key.api_key for key in provider.keys)):
            yield secret.reveal()
        for name, value in provider.headers.items():
            if SECRET_NAME.search(name) or _KEY.search(value.reveal()):
                yield value.reveal().rpartition(" ")[2]  # without the scheme
    for secret in (*config.server.keys, *filter(None, [config.admin.token])):
        yield secret.reveal()


def _is_telling(key: str) -> bool:
    return len(key) >= _LONG or (len(key) >= _SHORTEST and _DIGIT.search(key) is not None)
