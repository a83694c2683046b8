"""Faults in the messages of the Gemini API."""

from collections.abc import Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import (
    Json,
    changed,
    edited,
    edited_last,
    numbered,
    object_at,
    objects_in,
    repeated,
    without_members,
    zero_members,
)
from penstock.replay.faults.form import FaultForm, plain
from penstock.replay.faults.script import ScriptedResponse

_USAGE = "usageMetadata"
_FINISH = "finishReason"


def early_finish(script: ScriptedResponse) -> ScriptedResponse:
    """Send the finish reason with the first message."""
    reasons: list[object] = []
    changed(script, lambda message: reasons.extend(_finish_reasons(message)))
    given = iter(reasons[:1])

    def change(message: Json) -> list[Json] | None:
        candidates = objects_in(message.get("candidates"))
        reason = next(given, None) if candidates else None
        return [message | {"candidates": [candidates[0] | {_FINISH: reason}, *candidates[1:]]}] if reason else None

    return changed(script, change)


def broken_arguments(message: Json) -> list[Json] | None:
    """Stream the arguments of the last call, and end them in the middle of a string."""
    piece: Json = {"jsonPath": "$.city", "stringValue": "Lis", "willContinue": True}
    candidates = objects_in(message.get("candidates"))
    content = object_at(candidates[0], "content") if candidates else {}
    parts = objects_in(content.get("parts"))
    call = object_at(parts[0], "functionCall") if parts else {}
    if not call:
        return None
    begun = _without("args", call) | {"partialArgs": [piece], "willContinue": True}
    return [message | {"candidates": [candidates[0] | {"content": content | {"parts": [{"functionCall": begun}]}}]}]


def prompt_blocked(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the answer by the reason for which the prompt is blocked."""
    first = True

    def change(message: Json) -> list[Json]:
        nonlocal first
        blocked = _without("candidates", message) | {"promptFeedback": {"blockReason": "SAFETY"}}
        sent, first = ([blocked] if first else []), False
        return sent

    return changed(script, change)


def double_usage(message: Json) -> list[Json] | None:
    """Send the usage in a message of its own, too."""
    return [_without("candidates", message), message] if _USAGE in message else None


def no_finish(message: Json) -> list[Json] | None:
    """Remove the finish reason."""
    if not _finish_reasons(message):
        return None
    return [message | {"candidates": [_without(_FINISH, each) for each in objects_in(message.get("candidates"))]}]


def _without(name: str, value: Json) -> Json:
    return {each: item for each, item in value.items() if each != name}


def _finish_reasons(message: Json) -> list[object]:
    return [each[_FINISH] for each in objects_in(message.get("candidates")) if each.get(_FINISH)]


FORMS: Mapping[str, FaultForm] = {
    "no-usage": edited("completed", without_members(_USAGE)),
    "zero-usage": edited("completed, `usage-placeholder`", zero_members(_USAGE)),
    "double-usage": edited("completed", double_usage),
    "no-finish": edited("truncated", no_finish),
    "duplicate-finish": edited(
        "completed, `finish-repeated`", repeated(lambda message: bool(_finish_reasons(message)))
    ),
    "early-finish": plain("completed, `content-after-finish`, `finish-repeated`", early_finish),
    "changing-id": plain("completed, `id-changed`", lambda script: numbered(script, "responseId")),
    "prompt-blocked": plain("completed, `prompt-blocked`", prompt_blocked),
    "broken-arguments": edited_last("completed, `block-unclosed`, `tool-arguments-broken`", broken_arguments),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
