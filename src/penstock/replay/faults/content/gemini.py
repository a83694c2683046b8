"""Faults in the messages of the Gemini API."""

from collections.abc import Callable, Mapping

from penstock.replay.faults import framing
from penstock.replay.faults.edits import Json, change_last, changed, repeated, zeroed
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
        candidates = _candidates(message)
        reason = next(given, None) if candidates else None
        return [message | {"candidates": [candidates[0] | {_FINISH: reason}, *candidates[1:]]}] if reason else None

    return changed(script, change)


def changing_id(script: ScriptedResponse) -> ScriptedResponse:
    """Give every message an id of its own."""
    numbers = iter(range(len(script.data)))
    return changed(script, lambda message: [message | {"responseId": f"{message.get('responseId')}-{next(numbers)}"}])


def broken_arguments(script: ScriptedResponse) -> ScriptedResponse:
    """Stream the arguments of the last call, and end them in the middle of a string."""
    piece: Json = {"jsonPath": "$.city", "stringValue": "Lis", "willContinue": True}

    def change(message: Json) -> list[Json] | None:
        candidates = _candidates(message)
        content = candidates[0].get("content") if candidates else None
        parts = content.get("parts") if isinstance(content, dict) else None
        call = parts[0].get("functionCall") if isinstance(parts, list) and isinstance(parts[0], dict) else None
        if not isinstance(content, dict) or not isinstance(call, dict):
            return None
        begun = {name: value for name, value in call.items() if name != "args"} | {"partialArgs": [piece]}
        part = {"functionCall": begun | {"willContinue": True}}
        return [message | {"candidates": [candidates[0] | {"content": content | {"parts": [part]}}]}]

    return change_last(script, change)


def prompt_blocked(script: ScriptedResponse) -> ScriptedResponse:
    """Replace the answer by the reason for which the prompt is blocked."""
    first = True

    def change(message: Json) -> list[Json]:
        nonlocal first
        blocked = {name: value for name, value in message.items() if name != "candidates"}
        sent, first = ([blocked | {"promptFeedback": {"blockReason": "SAFETY"}}] if first else []), False
        return sent

    return changed(script, change)


def double_usage(script: ScriptedResponse) -> ScriptedResponse:
    """Send the usage in a message of its own, too."""
    return changed(
        script,
        lambda message: (
            [{name: value for name, value in message.items() if name != "candidates"}, message]
            if _USAGE in message
            else None
        ),
    )


def _without_finish(message: Json) -> list[Json] | None:
    if not _finish_reasons(message):
        return None
    kept = [{name: value for name, value in each.items() if name != _FINISH} for each in _candidates(message)]
    return [message | {"candidates": kept}]


def _with_usage(change: Callable[[object], Json]) -> Callable[[ScriptedResponse], ScriptedResponse]:
    """Replace the usage by members of the message; none removes it."""

    def changed_message(message: Json) -> list[Json] | None:
        rest = {name: value for name, value in message.items() if name != _USAGE}
        return [rest | change(message[_USAGE])] if _USAGE in message else None

    return lambda script: changed(script, changed_message)


def _candidates(message: Json) -> list[Json]:
    found = message.get("candidates")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _finish_reasons(message: Json) -> list[object]:
    return [each[_FINISH] for each in _candidates(message) if each.get(_FINISH)]


FORMS: Mapping[str, FaultForm] = {
    "no-usage": plain("completed", _with_usage(lambda _usage: {})),
    "zero-usage": plain("completed, `usage-placeholder`", _with_usage(lambda usage: {_USAGE: zeroed(usage)})),
    "double-usage": plain("completed", double_usage),
    "no-finish": plain("truncated", lambda script: changed(script, _without_finish)),
    "duplicate-finish": plain(
        "completed, `finish-repeated`",
        lambda script: repeated(script, lambda message: bool(_finish_reasons(message))),
    ),
    "early-finish": plain("completed, `content-after-finish`, `finish-repeated`", early_finish),
    "changing-id": plain("completed, `id-changed`", changing_id),
    "prompt-blocked": plain("completed, `prompt-blocked`", prompt_blocked),
    "broken-arguments": plain("completed, `block-unclosed`, `tool-arguments-broken`", broken_arguments),
    "glued": plain("completed, `glued-events`", framing.glued),
    "json-lines": plain("completed, `json-lines`", framing.json_lines),
    "pings": plain("completed, `keepalive-event`", framing.pings),
}
