"""Losses: what a translation between two dialects drops or approximates, by name.

A loss belongs to a pair of dialects and not to an answer: so it is not an event. Each writer (of requests or of
answers) keeps a list of `Loss`; the gateway reports them in the header `x-penstock-losses`, the ledger, metrics
and the page. A loss that `changes_meaning` can give a client another answer than it asked for: strict mode
(`x-penstock-strict: 1`) refuses it.

`docs/reference/losses.md` is generated from this table.
"""

from collections.abc import Iterable

from msgspec import Struct

# In a message.
_MOST_DETAILS = 3
_LONGEST_DETAIL = 60


class Loss(Struct, frozen=True, gc=False):
    """One thing that a translation could not carry: a row of `LOSSES`, and which field or value it was."""

    code: str
    detail: str = ""


class LossRow(Struct, frozen=True):
    """One row of the table: what happens, what is lost by it, and why that is acceptable."""

    meaning: str
    lost: str
    acceptable: str
    changes_meaning: bool = False


LOSSES: dict[str, LossRow] = {
    # Requests
    "attribution-dropped": LossRow(
        "The system prompt has a block that Claude Code addresses to Anthropic, and the provider is another one.",
        "The block; it is not an instruction to the model.",
        "Other providers would take it for a part of the prompt.",
    ),
    "cache-hint-dropped": LossRow(
        "A part of the request is marked for the provider's prompt cache, and the provider's API has no such mark.",
        "The provider may cache less, or by its own rules.",
        "A cache changes the cost of an answer, never its text.",
    ),
    "content-dropped": LossRow(
        "A part of the conversation exists only in the client's API, or is a file of a type that the provider's lacks.",
        "The model does not see that part.",
        "Only parts that no other API can express are affected; the detail names them.",
        changes_meaning=True,
    ),
    "error-flag-as-text": LossRow(
        "A tool's result is marked as an error, and the provider's API has no such mark.",
        "The mark; the result begins with the word `Error:` instead.",
        "The model reads the result as text in either case.",
    ),
    "field-dropped": LossRow(
        "A field of the request, or of the answer, exists in one of the two APIs only, or many providers refuse it.",
        "What the field asks for, or reports.",
        "Most such fields ask for a service of one provider; the detail names them. A field that a stream repeats is "
        "one loss.",
    ),
    "max-tokens-assumed": LossRow(
        "The provider's API requires a limit on the output, and the client set none.",
        "Answers longer than the assumed limit end with the finish reason `length`.",
        "The limit is the one configured for the provider, or the model's maximum.",
    ),
    "max-tokens-raised": LossRow(
        "The limit on the output is below the least that the provider's API accepts.",
        "The answer may be a few tokens longer.",
        "The provider would refuse the request otherwise.",
    ),
    "option-refused-by-provider": LossRow(
        "The provider is known to refuse a field that the client sent, so the field is removed.",
        "What the field asks for; usage that the client asked for is still reported by Penstock.",
        "With the field the provider would refuse the whole request.",
    ),
    "option-clamped": LossRow(
        "A number that the client sent is outside the limits that the provider is known to have.",
        "The nearest value that the provider takes is sent.",
        "With the client's value the provider would refuse the whole request.",
    ),
    "proxy-option-dropped": LossRow(
        "The request has a member by which clients control LiteLLM's proxy, such as `num_retries`.",
        "What the member asks for; no provider gets it.",
        "Retries, timeouts and caches are settings of the gateway; the detail names the member.",
    ),
    "prefill-not-continued": LossRow(
        "The conversation ends with the beginning of an answer, and providers of this API may not continue it.",
        "The answer may start anew, or repeat the beginning.",
        "The model sees the beginning; most models take it up.",
        changes_meaning=True,
    ),
    "reasoning-dropped": LossRow(
        "Earlier reasoning of the model cannot be sent to this provider.",
        "The model does not see its earlier reasoning.",
        "Providers discard earlier reasoning themselves in most conversations.",
    ),
    "result-media-moved": LossRow(
        "A tool's result contains an image or a file, and the provider's API allows only text there.",
        "Nothing: the media are sent in a user message after it.",
        "The model sees the same content one message later.",
    ),
    "sampling-dropped": LossRow(
        "The provider's API lacks a sampling setting that the client sent.",
        "The setting.",
        "Sampling settings shift probabilities; every answer they allow is still possible.",
    ),
    "server-tool-dropped": LossRow(
        "The client offers a tool that its own provider would execute, and the target has no such tool.",
        "The model cannot use the tool.",
        "The model may answer without the tool in any case.",
        changes_meaning=True,
    ),
    "stop-dropped": LossRow(
        "The provider's API has no stop sequences, or fewer than the client sent, or none of white space only.",
        "The answer continues where the client wanted it to end.",
        "The client receives more text, never less.",
        changes_meaning=True,
    ),
    "stop-sequence-unreported": LossRow(
        "The request has stop sequences, and the provider's API does not report which of them ended the answer.",
        "The client cannot tell an answer that ended at a stop sequence from one that was complete.",
        "The answer ends in the same place.",
    ),
    "tool-option-dropped": LossRow(
        "A tool has an option that the provider's API lacks.",
        "The option; the tool itself stays.",
        "The model can still call the tool.",
    ),
    "effort-approximated": LossRow(
        "The provider expresses reasoning effort in another way: in levels, or as a budget of tokens; or it refuses "
        "reasoning together with something else in the request.",
        "The exact level or budget: the nearest one is used, or none.",
        "Effort is a hint: the model reasons, a little more or less.",
    ),
    "grammar-dropped": LossRow(
        "A tool restricts its input by a grammar, and the provider's API has no grammars.",
        "The grammar.",
        "The model still sees the tool's description; the client must check the input anyway.",
        changes_meaning=True,
    ),
    "schema-loosened": LossRow(
        "The provider's API has no mode for any JSON object, or lacks a keyword of JSON Schema; the detail names it.",
        "The guarantee that the answer is JSON, or that it fulfils the keyword.",
        "The prompt asks for JSON, and a description has the keyword; the client must check the answer anyway.",
        changes_meaning=True,
    ),
    "system-moved": LossRow(
        "The provider refuses system messages between other messages.",
        "The role; the text is in the user message that follows.",
        "The model sees the text in the same place.",
    ),
    "temperature-clamped": LossRow(
        "The temperature exceeds the maximum of the provider's API.",
        "What exceeds it.",
        "The maximum is the nearest behaviour that the provider has.",
    ),
    "tool-choice-widened": LossRow(
        "The request allows some tools only, or demands a call, and the provider's API cannot express that.",
        "The restriction, or the demand.",
        "The model still sees all tools; the client decides which calls it executes.",
        changes_meaning=True,
    ),
    "tool-withheld": LossRow(
        "A tool is deferred and nothing in the conversation has added it, or the conversation has removed it. The "
        "provider's API has only tools that the model may call at once.",
        "The definition of the tool, until a reference or a message adds the tool.",
        "The model may not call the tool at this point in the client's API either.",
    ),
    "tools-unseen": LossRow(
        "The request has tools, or earlier calls of tools, and the chat template of the model on this machine has no "
        "place for them.",
        "The model does not see the tools or the calls, and cannot call a tool.",
        "It answers with text, and it sees the results of earlier calls. A request that demands a call is refused.",
        changes_meaning=True,
    ),
    # Answers
    "arguments-as-text": LossRow(
        "The arguments of a call are not a JSON object, usually because the limit on the output cut them off, or "
        "they are too complex to decode, and the client's API has objects only.",
        "The form: the arguments are an object with the text as its member `input`.",
        "The client's tool can refuse them, as it would refuse the text.",
        changes_meaning=True,
    ),
    "arguments-dropped": LossRow(
        "The provider goes on with the arguments of a call whose JSON was complete, after it has begun something else, "
        "and the client's API has one block after the other.",
        "What follows the complete JSON.",
        "With it the arguments would not be JSON. The answer also has the repair `tool-arguments-broken`.",
        changes_meaning=True,
    ),
    "choices-dropped": LossRow(
        "The provider sent several choices, and the client's API has only one.",
        "All choices but the first.",
        "The first choice is a complete answer.",
        changes_meaning=True,
    ),
    "citation-dropped": LossRow(
        "The client's API has no field for a citation; or, in a conversation, the provider's API has none.",
        "The citation; the text that it belongs to stays.",
        "The text is complete without it.",
    ),
    "media-dropped": LossRow(
        "The model sent an image, audio or video, and the client's API has no field for it.",
        "The media.",
        "The text of the answer stays, with the transcript of audio, and the loss is reported.",
        changes_meaning=True,
    ),
    "pause-unknown": LossRow(
        "The provider paused a long answer, to be asked to go on, and the client's API has no such ending.",
        "The client takes the answer for complete.",
        "Providers pause only while they execute tools of their own.",
        changes_meaning=True,
    ),
    "reasoning-hidden": LossRow(
        "The provider sends reasoning. The client did not ask for it, and its API sends none then.",
        "The text of the reasoning. Its tokens are reported and billed.",
        "The answer is complete without it. `unasked_thinking` in `[server]` shows it.",
    ),
    "seal-dropped": LossRow(
        "A provider signed its reasoning, and another one, or the client's API, has no use for the signature.",
        "The signature; the text of the reasoning stays.",
        "Providers answer without earlier reasoning; the answer itself is complete.",
    ),
    "server-activity-hidden": LossRow(
        "The provider executed a tool itself, and the client's API cannot express that.",
        "The call and its result; the text that the model wrote from them stays.",
        "The client is not involved in such a call, and must not execute it again.",
    ),
}


def changes_meaning(losses: Iterable[Loss]) -> list[str]:
    """The codes, each once, of the losses that can change what the client gets."""
    return sorted({loss.code for loss in losses if LOSSES[loss.code].changes_meaning})


def described(losses: Iterable[Loss]) -> str:
    """The losses that can change what the client gets, in words: each code once, with the first few details."""
    details: dict[str, list[str]] = {}
    for loss in losses:
        if LOSSES[loss.code].changes_meaning:
            details.setdefault(loss.code, []).append(loss.detail[:_LONGEST_DETAIL])
    return ", ".join(_with_details(code, given) for code, given in sorted(details.items()))


def _with_details(code: str, given: list[str]) -> str:
    few = [detail for detail in dict.fromkeys(given) if detail][:_MOST_DETAILS]
    return f"{code} ({', '.join(few)})" if few else code


def counted(losses: Iterable[Loss]) -> dict[str, int]:
    """How often each code occurs."""
    counts: dict[str, int] = {}
    for loss in losses:
        counts[loss.code] = counts.get(loss.code, 0) + 1
    return counts
