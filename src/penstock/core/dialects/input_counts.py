"""The count of a request's input tokens in a provider's response, as several APIs send it."""

import msgspec


def read_input_tokens(body: bytes) -> int | None:
    """The member `input_tokens` of a body; None if there is none."""
    try:
        counted = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return None
    tokens = counted.get("input_tokens") if isinstance(counted, dict) else None
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0 else None
