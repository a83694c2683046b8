"""Advice: what the user can do after an error, by the gateway's error code."""

# By code or prefix of a code; the first match counts. The texts suit a pipe and a prompt.
ADVICE: tuple[tuple[str, str], ...] = (
    ("invalid_api_key", "set the gateway's key with --key or PENSTOCK_KEY"),
    ("host_not_allowed", "add this name to [server] hosts of the gateway, or use localhost or an IP address"),
    ("model_not_found", "choose another model with -m or /model"),
    ("chat_connect", "is it running? start it with penstock serve, or leave out --url"),
    ("upstream_connect", "check the network and the provider's address, then retry"),
    ("upstream_dns", "check the network and the provider's address, then retry"),
    ("upstream_tls", "check the provider's address and this machine's certificates"),
    ("upstream_auth", "check which key is used: penstock check"),
    ("upstream_rate_limited", "wait a little, then retry, or choose another model"),
    ("upstream_", "retry, or choose another model"),
    ("gateway_", "retry in a moment"),
    ("status_401", "set the right key with --key or PENSTOCK_KEY"),
    ("status_403", "set the right key with --key or PENSTOCK_KEY"),
    ("status_4", "change the request, or choose another model"),
    ("context_length_exceeded", "shorten the request, or choose another model"),
    ("invalid_request", "change the request, or choose another model"),
)
_DEFAULT = "retry, or choose another model"


def advice(code: str) -> str:
    """What to do after an error with this code."""
    return next((words for start, words in ADVICE if code.startswith(start)), _DEFAULT)
