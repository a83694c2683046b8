"""Client headers: every HTTP header that the gateway reads from a client's request or sends with its response.

`docs/clients.md` is generated from this table. A test scans the code for headers that are missing here.
"""

REQUEST_HEADERS: dict[str, str] = {
    "authorization": "`Bearer KEY`: the client's key, where the gateway requires one; or a "
    "[signature](bedrock.md#signed-requests) as AWS has it.",
    "x-amz-date": "The time of a request that is [signed](bedrock.md#signed-requests) as AWS does.",
    "x-amz-content-sha256": "The hash of its body, if the client sends one.",
    "x-api-key": "The same key, as some clients send it. Read if there is no bearer token.",
    "api-key": "The same key, as some clients send it. Read if there is neither of the others.",
    "x-goog-api-key": "The same key, as clients of the Gemini API send it. With it, `GET /v1/models` answers in "
    "the form of that API.",
    "x-goog-api-client": "Sent by Google's SDKs. It has the same effect on `GET /v1/models`, and is forwarded to "
    "providers of the Gemini API.",
    "x-fern-sdk-name": "Sent by Cohere's packages. With it, `GET /v1/models` answers in the form of Cohere's API.",
    **dict.fromkeys(
        ("openai-organization", "openai-project", "x-goog-user-project", "x-app"),
        "Forwarded with a [credential of the client's own](provider-keys.md#credentials-of-clients).",
    ),
    "x-penstock-key": "The client's key, if the headers above have a [credential of the client's own]"
    "(provider-keys.md#credentials-of-clients) for a provider.",
    "content-type": "`application/json`. Other types are accepted, except from web pages.",
    "content-encoding": "Must be missing or `identity`: compressed request bodies are not supported.",
    "x-client-request-id": "The client's own id for the request. The response repeats it.",
    "x-penstock-strict": "`1` asks for [strict mode](reference/losses.md#strict-mode): fail rather than translate with "
    "a loss that changes the meaning. Every value except `0` and `false` asks for it.",
    "x-penstock-report": "`1` asks for a [report](#what-a-call-has-cost) at the end of a stream: cost, tokens, "
    "provider, repairs. Every value except `0` and `false` asks for it.",
    "x-penstock-store": "`false` asks that no text of the call is kept, as `store: false` does in chat completions and "
    "Responses: neither [for the operator](privacy.md#content-of-calls) nor to be continued by its id. Every value "
    "except `1` and `true` asks for it.",
    "x-penstock-durable": "`1` asks for a [durable stream](streams.md), to which the client can come back; `0` "
    "forbids it.",
    "x-conversation-id": "The client's own id of its stream, by which it [comes back](streams.md#come-back).",
    "idempotency-key": "The same request with the same key is the same call: it gets the "
    "[stream](streams.md#which-streams-are-durable) of the first one.",
    "last-event-id": "The last event of a [durable stream](streams.md#come-back) that the client has.",
    "cache-control": "`no-cache`, `no-store` or `max-age`, where answers are [cached](streams.md#cached-answers).",
    "x-penstock-require": "What a provider must [fulfil](routing.md#requirements) to get the request: `zdr`, "
    "`data_collection`, `region`, `max_price`.",
    "x-penstock-continue": "`never` or `same-model`: less than the route allows for [answers that break off]"
    "(routing.md#answers-that-break-off).",
    "x-penstock-on-disconnect": "What happens to a durable stream [without a reader]"
    "(streams.md#to-leave-is-not-to-stop): `cancel`, `continue` or `linger`.",
    "accept": "With `application/json`, `GET /v1/streams/{id}` answers [what the stream is](streams.md#come-back).",
    "anthropic-version": "Sent by all clients of the Anthropic API. With it, `GET /v1/models` answers in the form of "
    "that API.",
    "anthropic-beta": "Forwarded to providers of the Anthropic API, as are all headers that begin with `anthropic-`, "
    "`x-claude-code-` or `x-stainless-` and hold no credentials.",
    "x-claude-code-session-id": "Claude Code's session: the tag `session` of the call in the [ledger](ledger.md).",
    "x-claude-code-agent-id": "Claude Code's sub-agent: the tag `agent`.",
    "openai-beta": "Forwarded to providers of the OpenAI Responses API, as are `originator`, `session-id`, `thread-id` "
    "and all headers that begin with `x-codex-`.",
    "session-id": "Codex's session: the tag `session`.",
    "traceparent": "The W3C trace that the call belongs to, if [tracing](metrics.md) is on.",
    "x-forwarded-for": "The address of the client, for the log. Read from [listed proxies]"
    "(reference/configuration.md#server) only.",
    "host": "Checked where no key is required (a guard against DNS rebinding); see "
    "[configuration.md](access.md#without-a-key).",
    "origin": "Checked where no key is required (a guard against CSRF). Pages of [listed origins]"
    "(access.md#calls-from-web-pages) can read the responses.",
}

RESPONSE_HEADERS: dict[str, str] = {
    "x-request-id": "The id of the call: the same in the log, the ledger, error bodies and captures.",
    "x-client-request-id": "The client's own id for the request, if it sent one.",
    "request-id": "The same id, for clients of Anthropic Messages.",
    "x-penstock-estimated": "`true` with a token count that the gateway estimated, because no provider counted.",
    "openai-processing-ms": "Milliseconds from the request to the first event of the answer.",
    "x-penstock-provider": "The provider that answered.",
    "x-penstock-model": "The provider's name for the model that answered.",
    "x-penstock-attempts": "The number of targets that were tried.",
    "x-penstock-cost": "The [cost](#what-a-call-has-cost) of the call in dollars, such as `0.000011`, with an answer "
    "that is not streamed. Missing if a price is not known.",
    "x-penstock-repairs": "The [repairs](reference/repairs.md) that were made before the headers were sent, as "
    "`code=count`, separated by commas.",
    "x-penstock-findings": "The [findings](reference/repairs.md#findings) of the same part of the stream, likewise.",
    "x-penstock-notices": "The [notices](reference/repairs.md#notices) of the same part of the stream, likewise.",
    "x-penstock-cache": "Where the gateway has set [breakpoints](caching.md) for the provider's prompt cache, such as "
    "`tools,system,message`.",
    "x-penstock-route": "Why the target was chosen, where a [strategy](routing.md#strategies) has chosen it.",
    "x-penstock-answer-of": "The call whose answer this one [shares](streams.md#one-call-for-identical-requests), "
    "or gets from the [cache](streams.md#cached-answers).",
    "age": "The age in seconds of an answer from the [cache](streams.md#cached-answers).",
    "location": "The address of a [durable stream](streams.md), for coming back.",
    "x-penstock-losses": "The [losses](reference/losses.md) of the translation for the provider that answered, as far "
    "as they were known before the headers were sent, likewise. If strict mode refuses the request, those of all "
    "targets.",
    "x-penstock-degraded": "The stores that cannot be reached now, such as `ledger` or `redis`. The call is served all "
    "the same; see [ledger.md](ledger.md).",
    "x-penstock-capture": "From `penstock replay` only: the capture that is replayed.",
    "x-amzn-requestid": "The same id, for clients of Amazon Bedrock.",
    "x-ratelimit-limit-requests": "The key's limit of requests per minute, if it has one.",
    "x-ratelimit-remaining-requests": "How many of them are left.",
    "x-ratelimit-reset-requests": "The time until all of them are available again, as `6m0s`, `1.5s` or `120ms`.",
    "x-ratelimit-limit-tokens": "The key's limit of tokens per minute, if it has one.",
    "x-ratelimit-remaining-tokens": "How many of them are left.",
    "x-ratelimit-reset-tokens": "The time until all of them are available again.",
    "retry-after": "With errors: the number of seconds to wait before a retry, where it is known.",
    "x-should-retry": "`false` with errors that a retry does not change. The official OpenAI SDKs obey it.",
    "access-control-allow-origin": "To pages of [listed origins](access.md#calls-from-web-pages), with further "
    "headers of CORS.",
    "allow": "With 405: the methods that the path takes.",
    "content-type": "`application/json`, or `text/event-stream` for a stream.",
    "cache-control": "`no-cache, no-transform` for a stream: proxies must not store or compress it.",
    "x-accel-buffering": "`no` for a stream: nginx must not buffer it.",
}
