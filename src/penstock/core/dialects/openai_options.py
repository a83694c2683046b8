"""What requests of OpenAI's two APIs, chat completions and Responses, have in common."""

from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

from penstock.core.dialects.request_writer import note_lifetime
from penstock.core.hub.losses import Loss
from penstock.core.hub.request import ReasoningSettings, ResponseFormat

Effort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORTS: tuple[Effort, ...] = get_args(Effort)
"""How much a model may be asked to reason, in ascending order."""
MAX_ID = 64
"""OpenAI refuses a longer id of a call."""
MAX_USER = 64
"""OpenAI refuses a longer `user`."""
NO_SCHEMA = "the format `json_schema` needs a schema"
"""Why a request is refused whose format names no schema."""
# How OpenAI writes the lifetimes of its marks for the prompt cache.
_LIFETIMES = {"5m": "", "30m": "30m", "12h": "12h"}
# Upper limits of a budget in tokens, and the effort that each stands for. A larger budget is high effort.
_BUDGETS = ((1_024, "minimal"), (4_096, "low"), (16_384, "medium"))


def write_effort(reasoning: ReasoningSettings | None, accepted: Sequence[Effort], losses: list[Loss]) -> str | None:
    """The nearest effort that the provider accepts; None if the model decides."""
    if reasoning is None:
        return None
    budget = next((effort for most, effort in _BUDGETS if (reasoning.budget or 0) <= most), "high")
    wanted = "none" if reasoning.enabled is False else reasoning.effort or (budget if reasoning.budget else None)
    if wanted is None:
        return None
    accepted = [effort for effort in accepted if effort != "none" or wanted == "none"]  # who reasons is not silenced
    if not accepted:
        losses.append(Loss("field-dropped", "reasoning_effort"))
        return None
    if wanted in accepted and (reasoning.effort == wanted or reasoning.enabled is False):
        return wanted
    rank = next((rank for rank, effort in enumerate(EFFORTS) if effort == wanted), EFFORTS.index("medium"))
    nearest = min(accepted, key=lambda effort: abs(EFFORTS.index(effort) - rank))
    losses.append(Loss("effort-approximated", f"{reasoning.budget or wanted} as {nearest}"))
    return nearest


def with_mark(part: dict[str, object], cache: str, losses: list[Loss], *, accepted: bool) -> dict[str, object]:
    """A part with OpenAI's mark for its prompt cache, if the client has marked it and the provider accepts marks."""
    if not cache or not accepted:
        losses.extend([Loss("cache-hint-dropped", cache)] if cache else [])
        return part
    lifetime = note_lifetime(cache, _LIFETIMES, losses)
    return part | {"prompt_cache_breakpoint": {"mode": "explicit"} | ({"ttl": lifetime} if lifetime else {})}


def describe_schema(form: ResponseFormat) -> dict[str, object]:
    """The schema that an answer must have, and what is said of it."""
    described: dict[str, object] = {"name": form.name or "answer", "schema": form.schema or {}}
    optional = {"strict": form.strict, "description": form.description or None}
    return described | {name: value for name, value in optional.items() if value is not None}
