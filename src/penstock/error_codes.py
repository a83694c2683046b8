"""Error codes: every code that the gateway sends to a client or writes to its ledger, with its status and meaning.

`Failure` takes its status and its type from this table, so an error whose code has no row here cannot be made; mypy
checks the literals. `docs/clients.md` is generated from it.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

ErrorCode: TypeAlias = Literal[
    "admin_busy",
    "ambiguous",
    "bad_request",
    "body_too_large",
    "budget_exceeded",
    "call_not_found",
    "cancelled_by_client",
    "capture_not_found",
    "capture_not_kept",
    "client_credentials_missing",
    "client_credentials_not_allowed",
    "client_credentials_refused",
    "client_gone",
    "content_not_allowed",
    "content_not_kept",
    "content_unavailable",
    "context_length_exceeded",
    "duplicate_key",
    "entry_not_found",
    "gateway_died",
    "gateway_draining",
    "gateway_overloaded",
    "headers_too_large",
    "host_not_allowed",
    "inspection_timeout",
    "inspector_busy",
    "insufficient_quota",
    "internal_error",
    "invalid_admin_token",
    "invalid_api_key",
    "invalid_json",
    "invalid_key_terms",
    "invalid_parameter",
    "invalid_request",
    "key_in_model",
    "key_not_found",
    "key_policy",
    "key_unusable",
    "ledger_unavailable",
    "local_busy",
    "local_failed",
    "local_text_only",
    "local_unavailable",
    "member_not_found",
    "method_not_allowed",
    "model_not_allowed",
    "model_not_found",
    "model_unpriced",
    "model_without_embeddings",
    "name_taken",
    "no_healthy_target",
    "not_found",
    "origin_not_allowed",
    "page_not_proven",
    "permission_denied",
    "plan_changed",
    "previous_response_not_found",
    "provider_keys_at_limit",
    "provider_routing_not_allowed",
    "query_too_slow",
    "rate_limit_exceeded",
    "request_answered",
    "request_not_found",
    "request_timeout",
    "request_too_complex",
    "requirements_unmet",
    "response_not_found",
    "shared_state_not_allowed",
    "stopped_by_operator",
    "stream_cursor_ahead",
    "stream_expired",
    "stream_gap",
    "stream_mismatch",
    "stream_not_found",
    "team_in_use",
    "team_not_allowed",
    "team_not_found",
    "token_not_found",
    "session_not_found",
    "too_many_concurrent_requests",
    "too_many_connections",
    "too_many_open_requests",
    "too_many_readers",
    "too_many_watchers",
    "transfer_coding_not_supported",
    "translation_loss",
    "unreadable",
    "unsupported_encoding",
    "unsupported_type",
    "upgrade_not_supported",
    "upstream_auth",
    "upstream_bad_content_type",
    "upstream_bad_finish",
    "upstream_bad_response",
    "upstream_connect_failed",
    "upstream_connect_timeout",
    "upstream_dns_failed",
    "upstream_empty",
    "upstream_error",
    "upstream_event_too_large",
    "upstream_forbidden_address",
    "upstream_model_not_found",
    "upstream_no_credit",
    "upstream_rate_limited",
    "upstream_redirect",
    "upstream_refusal",
    "upstream_reset",
    "upstream_stale",
    "upstream_timeout_headers",
    "upstream_timeout_idle",
    "upstream_timeout_total",
    "upstream_tls_failed",
    "upstream_too_slow",
    "upstream_truncated",
    "url_too_long",
    "user_not_found",
    "websocket_connection_limit_reached",
]
ErrorType: TypeAlias = Literal[
    "authentication_error",
    "insufficient_quota",
    "invalid_request_error",
    "rate_limit_error",
    "server_error",
    "upstream_error",
]
TRUNCATION_CODES: frozenset[ErrorCode] = frozenset(("upstream_truncated", "upstream_reset", "upstream_stale"))
"""The connection to the provider ended before the answer was complete: the answer is `truncated`."""
Responsible: TypeAlias = Literal["client", "operator", "provider", "gateway"]
"""Who can correct the error. The operator runs the gateway: configuration, keys, limits, the machine."""


class ErrorRow(Struct, frozen=True, gc=False):
    """One row of the table."""

    types: dict[int, ErrorType]
    """The error type by HTTP status. The first status is the usual one."""
    responsible: Responsible
    meaning: str
    action: str
    """What the client, or the person behind it, should do."""

    @property
    def status(self) -> int:
        """The usual HTTP status."""
        return next(iter(self.types))

    def type_of(self, status: int) -> ErrorType:
        """The error type that is sent with a status. A provider's own 4xx has that of the usual status."""
        return self.types.get(status) or self.types[self.status]


_BAD_REQUEST: dict[int, ErrorType] = {400: "invalid_request_error"}
_FORBIDDEN: dict[int, ErrorType] = {403: "invalid_request_error"}
_NOT_FOUND: dict[int, ErrorType] = {404: "invalid_request_error"}
_CONFLICT: dict[int, ErrorType] = {409: "invalid_request_error"}
_GONE: dict[int, ErrorType] = {410: "invalid_request_error"}
_UNSUPPORTED: dict[int, ErrorType] = {415: "invalid_request_error"}
_UNAUTHORIZED: dict[int, ErrorType] = {401: "authentication_error"}
_LIMITED: dict[int, ErrorType] = {429: "rate_limit_error"}
_QUOTA: dict[int, ErrorType] = {429: "insufficient_quota"}
_UPSTREAM: dict[int, ErrorType] = {502: "upstream_error"}
_UPSTREAM_TIMEOUT: dict[int, ErrorType] = {504: "upstream_error"}
_UNAVAILABLE: dict[int, ErrorType] = {503: "server_error"}
_LOCAL: dict[int, ErrorType] = {503: "upstream_error"}

_RETRY_LATER = "Retry after the time in `retry-after`."
_RETRY = "Retry, or use another model."
_CHECK_PROVIDER = "Check the provider's address and the network between the gateway and it."

# The titles of the groups are the headings of docs/clients.md.
ERROR_GROUPS: dict[str, dict[ErrorCode, ErrorRow]] = {
    "The request": {
        "invalid_request": ErrorRow(
            _BAD_REQUEST,
            "client",
            "A field of the request is missing or wrong; `param` names it. The log also has this code for every "
            "other 4xx of a provider, whose own body and status are sent on.",
            "Correct the request.",
        ),
        "invalid_json": ErrorRow(_BAD_REQUEST, "client", "The body is not a JSON object.", "Correct the body."),
        "duplicate_key": ErrorRow(
            _BAD_REQUEST,
            "client",
            "A field is in the body twice. Two JSON readers could understand it differently.",
            "Send each field once.",
        ),
        "request_too_complex": ErrorRow(
            _BAD_REQUEST,
            "client",
            "The body, or JSON in the arguments of a tool call, has more values than a request of its size may have, "
            "or is nested too deep. Reading it would delay other calls.",
            "Send a simpler body.",
        ),
        "translation_loss": ErrorRow(
            {400: "invalid_request_error", 502: "upstream_error"},
            "client",
            "The call is [strict](reference/losses.md#strict-mode), and the request (400) or the answer (502) can only "
            "be translated with losses that change its meaning. The message names them, in a 400 for each target.",
            "Remove what the message names, use another model, or do not ask for strict mode.",
        ),
        "previous_response_not_found": ErrorRow(
            _BAD_REQUEST,
            "client",
            "`previous_response_id` names a response that is not kept: it was never kept, is deleted or has failed, or "
            "another key got it. The message says so if the gateway keeps none "
            "([`[responses] store`](reference/configuration.md#responses)).",
            "Send the whole conversation as `input`.",
        ),
        "websocket_connection_limit_reached": ErrorRow(
            _BAD_REQUEST,
            "client",
            "A WebSocket is an hour old (`websocket_max_age_s`), so the gateway closes it.",
            "Open a new connection. Continue there with `previous_response_id` if the response is kept; else send the "
            "whole conversation as `input`.",
        ),
        "response_not_found": ErrorRow(
            _NOT_FOUND,
            "client",
            "There is no kept response with this id for this key. The message says so if the gateway keeps none.",
            "Check the id and the key.",
        ),
        "stream_not_found": ErrorRow(
            _NOT_FOUND,
            "client",
            "There is no [durable stream](streams.md) with this id for this key.",
            "Check the id and the key. Without a stream, send the request again.",
        ),
        "stream_expired": ErrorRow(
            _GONE,
            "client",
            "The stream has ended, and its time to be read again (`keep_s`) is over.",
            "Send the request again, if the answer is still needed.",
        ),
        "stream_gap": ErrorRow(
            _GONE,
            "client",
            "The stream is longer than `max_stream`, so it has lost the events that the reader needs next. The message "
            "names the oldest one.",
            "Read from that event on, or send the request again.",
        ),
        "stream_cursor_ahead": ErrorRow(
            _CONFLICT,
            "client",
            "The reader names an event that the stream does not have yet. The message names the last one.",
            "Read from an event that you have.",
        ),
        "stream_mismatch": ErrorRow(
            {409: "invalid_request_error", 422: "invalid_request_error"},
            "client",
            "The request asks for the rest of a stream (409), or has the `Idempotency-Key` of another one (422), but "
            "it is not the request that started it.",
            "Send the same body, or leave the header out.",
        ),
        "too_many_readers": ErrorRow(
            _LIMITED, "client", "The stream has as many readers as it may have.", "Close one, then try again."
        ),
        "cancelled_by_client": ErrorRow(
            {499: "upstream_error"},
            "client",
            "A client has cancelled the durable stream. Its other readers get this error.",
            "–",
        ),
        "shared_state_not_allowed": ErrorRow(
            _BAD_REQUEST,
            "operator",
            "The request refers to something that is stored in a provider's account: a file, an item, a conversation, "
            "a prompt, a vector store, a container, a cache, or an object in S3 or Cloud Storage. All clients of the "
            "gateway share the account, so such ids would give access to one another's data.",
            "Send the content itself, or set [`[server] shared_state`](reference/configuration.md#server). An item of "
            "an earlier response was not kept, or is no longer: see [kept responses](responses.md#kept-responses).",
        ),
        "provider_routing_not_allowed": ErrorRow(
            _BAD_REQUEST,
            "operator",
            "The request has a field by which a provider chooses another model or route, such as OpenRouter's `models` "
            "or `provider`. That would bypass the models and the prices of keys.",
            "Name the model in `model` only, or set [`[server] provider_routing`](reference/configuration.md#server).",
        ),
        "not_found": ErrorRow(_NOT_FOUND, "client", "The gateway has no such path.", "Check the base URL."),
        "method_not_allowed": ErrorRow(
            {405: "invalid_request_error"},
            "client",
            "The path exists, but not for this method; the header `allow` names those that it takes.",
            "Use one of them.",
        ),
        "unsupported_type": ErrorRow(
            _UNSUPPORTED,
            "client",
            "A web page sent a body that is not JSON. Browsers send such bodies to any host without a CORS preflight.",
            "Send `content-type: application/json`.",
        ),
        "unsupported_encoding": ErrorRow(
            _UNSUPPORTED, "client", "The body has a `content-encoding`.", "Send the body uncompressed."
        ),
        "bad_request": ErrorRow(
            _BAD_REQUEST,
            "client",
            "The request is not valid HTTP/1.1. The connection is closed.",
            "Correct the client.",
        ),
        "transfer_coding_not_supported": ErrorRow(
            {501: "invalid_request_error"},
            "client",
            "The body has another transfer coding than `chunked`. The connection is closed.",
            "Send a `content-length`, or `transfer-encoding: chunked`.",
        ),
        "upgrade_not_supported": ErrorRow(
            {426: "invalid_request_error"},
            "client",
            "The request asks for another protocol, such as WebSocket.",
            "Use HTTP/1.1.",
        ),
        "url_too_long": ErrorRow({414: "invalid_request_error"}, "client", "The URL is too long.", "Shorten it."),
        "headers_too_large": ErrorRow(
            {431: "invalid_request_error"}, "client", "There are too many headers, or too large ones.", "Send fewer."
        ),
        "body_too_large": ErrorRow(
            {413: "invalid_request_error"},
            "client",
            "The body is larger than `max_body` in [`[limits]`](reference/configuration.md#limits).",
            "Send a smaller body, for example with smaller images.",
        ),
        "request_timeout": ErrorRow(
            {408: "invalid_request_error"},
            "client",
            "The request did not arrive in time: `head_timeout_s` and `body_timeout_s` in "
            "[`[limits]`](reference/configuration.md#limits).",
            "Send it again.",
        ),
    },
    "Access, budgets and limits": {
        "invalid_api_key": ErrorRow(
            _UNAUTHORIZED, "client", "The client's key is missing, unknown, expired or revoked.", "Send a valid key."
        ),
        "client_credentials_missing": ErrorRow(
            _UNAUTHORIZED,
            "client",
            "The model is called with [credentials of clients](provider-keys.md#credentials-of-clients) only, and the "
            "request has none.",
            "Send your own credential in the header of the SDK, and the gateway's key in `x-penstock-key`.",
        ),
        "client_credentials_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "The request has a credential of the client's own, which the key or the provider does not allow.",
            "Send the gateway's key in its place, without `x-penstock-key`, or ask the operator to allow it.",
        ),
        "client_credentials_refused": ErrorRow(
            {401: "authentication_error", 403: "invalid_request_error"},
            "client",
            "The provider refused the credential that the client sent for it. The message is the provider's.",
            "Sign in at the provider again, or send another key of your own.",
        ),
        "host_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "No key is required, and the request names a host that is not allowed (a guard against DNS rebinding).",
            "Add the name to [`[server] hosts`](access.md#without-a-key), or require a key.",
        ),
        "origin_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "No key is required, and the request comes from a web page that is not allowed (a guard against CSRF).",
            "Add its host to [`[server] hosts`](access.md#without-a-key), or require a key.",
        ),
        "key_in_model": ErrorRow(
            _BAD_REQUEST,
            "client",
            "`model` contains an API key: one that the gateway knows, or a text that looks like one. The request was "
            "not sent to a provider, and its model is not recorded.",
            "Put the model's name there, and the key in `authorization`.",
        ),
        "team_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "The JWT is valid, but the team of its client does not exist in Penstock.",
            "Create the team ([`penstock teams create`](teams.md)), or correct `teams` in "
            "[`[auth.jwt]`](people.md#clients-with-a-jwt).",
        ),
        "model_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "The key may not use this model.",
            "Use a model that `GET /v1/models` lists, or ask for another key.",
        ),
        "requirements_unmet": ErrorRow(
            _FORBIDDEN,
            "client",
            "No target of the model meets what the request or its route [requires](routing.md#requirements).",
            "Require less, or use another model.",
        ),
        "model_unpriced": ErrorRow(
            _FORBIDDEN,
            "operator",
            "The key has a budget, and the model has no known price, so the budget could not be enforced.",
            "Set a price under [`[prices]`](prices.md), or use a key without a budget.",
        ),
        "insufficient_quota": ErrorRow(
            _QUOTA,
            "operator",
            "The rest of the key's budget does not cover the call: its input, and the output that `max_tokens` allows "
            "(or a short answer, if the request sets no limit).",
            "Set a smaller `max_tokens`, wait for the next budget period, or ask for a larger budget.",
        ),
        "budget_exceeded": ErrorRow(
            _QUOTA,
            "operator",
            "The key's budget was used up while the answer was generated. The answer is incomplete.",
            "Wait for the next budget period, or ask for a larger budget.",
        ),
        "rate_limit_exceeded": ErrorRow(
            _LIMITED,
            "client",
            "The key's limit of requests or tokens per minute is reached.",
            "Retry after the time in `retry-after`. If it is missing, the request alone exceeds the limit.",
        ),
        "too_many_concurrent_requests": ErrorRow(
            _LIMITED, "client", "The key has too many calls running.", "Retry when one of them has ended."
        ),
    },
    "Models and targets": {
        "model_not_found": ErrorRow(
            _NOT_FOUND,
            "client",
            "No route and no provider has this model, or "
            "[several have it](routing.md#how-a-model-name-is-resolved). The message names similar models.",
            "Use a model that `GET /v1/models` lists.",
        ),
        "model_without_embeddings": ErrorRow(
            _NOT_FOUND, "client", "No provider of this model offers `/v1/embeddings`.", "Use an embedding model."
        ),
        "no_healthy_target": ErrorRow(
            _LOCAL,
            "provider",
            "Every target of this model failed recently and is cooling down.",
            _RETRY_LATER,
        ),
        "provider_keys_at_limit": ErrorRow(
            _LIMITED,
            "operator",
            "The [keys of the model's providers](provider-keys.md#several-keys-of-a-provider) are at the limits that "
            "the configuration sets (`rpm`, `tpm`), or cool down.",
            "Retry after the time in `retry-after`. If it is missing, the request alone exceeds the limit.",
        ),
        "capture_not_found": ErrorRow(
            {404: "invalid_request_error", 502: "invalid_request_error"},
            "operator",
            "The provider replays captures, and none fits this request (404), or its file cannot be read (502). No "
            "other target is tried.",
            "Use a model that `GET /v1/models` lists, or record this request.",
        ),
    },
    "The provider": {
        "upstream_auth": ErrorRow(
            _UPSTREAM,
            "operator",
            "The provider rejected the gateway's key (its status was 401 or 403). The client's own key is fine, so "
            "this is never sent as a 401. A 403 of a provider's moderation is sent on as it is (`invalid_request`).",
            "Correct the provider's key in the configuration.",
        ),
        "upstream_no_credit": ErrorRow(
            {402: "upstream_error", 502: "upstream_error"},
            "operator",
            "The operator's account at the provider has no credit, and no other target is left. The status and the "
            "body are the provider's own; 502 if its status was 401 or 403.",
            "Add credit to the account, or add a target to the route.",
        ),
        "upstream_model_not_found": ErrorRow(
            {404: "upstream_error", 502: "upstream_error"},
            "operator",
            "The operator's account at the provider has no such model or deployment, and no other target is left. The "
            "status and the body are the provider's own; 502 if its status was 401 or 403.",
            "Use another model, or correct the target of the route.",
        ),
        "upstream_rate_limited": ErrorRow(
            {429: "upstream_error"},
            "provider",
            "The provider's rate limit is reached. `retry-after` is the provider's own, or else the rest of "
            "the cool-down.",
            _RETRY_LATER,
        ),
        "upstream_error": ErrorRow(
            {502: "upstream_error", 503: "upstream_error", 504: "upstream_error"},
            "provider",
            "The provider answered with a 5xx or a 408, or with an error inside a 200. 503 if it is overloaded, 504 if "
            "it reported a timeout itself.",
            _RETRY,
        ),
        "upstream_connect_failed": ErrorRow(
            _UPSTREAM, "provider", "The gateway cannot connect to the provider.", _CHECK_PROVIDER
        ),
        "upstream_connect_timeout": ErrorRow(
            _UPSTREAM_TIMEOUT, "provider", "Connecting to the provider took too long.", _CHECK_PROVIDER
        ),
        "upstream_dns_failed": ErrorRow(
            _UPSTREAM, "provider", "The provider's host name cannot be resolved.", _CHECK_PROVIDER
        ),
        "upstream_tls_failed": ErrorRow(
            _UPSTREAM,
            "provider",
            "The TLS handshake with the provider failed.",
            "Check the provider's address, and the certificates on the gateway's machine.",
        ),
        "upstream_forbidden_address": ErrorRow(
            _UPSTREAM,
            "operator",
            "The provider's host name resolves to an address that is never a provider: link-local (cloud metadata), "
            "multicast or unspecified (a guard against SSRF).",
            "Correct the provider's `base_url`.",
        ),
        "upstream_redirect": ErrorRow(
            _UPSTREAM,
            "operator",
            "The provider answered with a redirect. The gateway does not follow it with its key.",
            "Set the provider's `base_url` to the final address.",
        ),
        "upstream_timeout_headers": ErrorRow(
            _UPSTREAM_TIMEOUT, "provider", "The provider did not begin its answer in time.", _RETRY
        ),
        "upstream_timeout_idle": ErrorRow(
            _UPSTREAM_TIMEOUT, "provider", "The provider stopped sending for too long.", _RETRY
        ),
        "upstream_timeout_total": ErrorRow(
            _UPSTREAM_TIMEOUT,
            "provider",
            "The call reached the total timeout of its route. No other target is tried.",
            "Ask for a shorter answer, or raise `total_s` in [`[timeouts]`](reference/configuration.md#timeouts).",
        ),
        "upstream_reset": ErrorRow(
            _UPSTREAM, "provider", "The provider reset the connection before the answer was complete.", _RETRY
        ),
        "upstream_truncated": ErrorRow(
            _UPSTREAM, "provider", "The provider's answer stopped before it was complete.", _RETRY
        ),
        "upstream_empty": ErrorRow(_UPSTREAM, "provider", "The provider's answer has no content.", _RETRY),
        "upstream_bad_finish": ErrorRow(
            _UPSTREAM,
            "provider",
            "The model ended its answer in a way that leaves none, for example with a malformed tool call. The "
            "provider works, so the target does not cool down.",
            "Retry, change the prompt or the tools, or use another model.",
        ),
        "upstream_too_slow": ErrorRow(
            _UPSTREAM_TIMEOUT, "provider", "The answer came more slowly than its route demands.", _RETRY
        ),
        "upstream_refusal": ErrorRow(
            _UPSTREAM,
            "provider",
            "The model refused, or its answer was filtered, and the target that the route names for that was tried "
            "instead. Only attempts have this code.",
            "Nothing.",
        ),
        "upstream_bad_response": ErrorRow(
            _UPSTREAM, "provider", "The provider's answer is not valid HTTP, JSON or server-sent events.", _RETRY
        ),
        "upstream_bad_content_type": ErrorRow(
            _UPSTREAM,
            "provider",
            "The provider answered with an HTML page.",
            "Check the provider's `base_url`, and any proxy between the gateway and it.",
        ),
        "upstream_event_too_large": ErrorRow(
            _UPSTREAM,
            "provider",
            "An event of the provider's stream exceeds `max_event` in [`[limits]`](reference/configuration.md#limits), "
            "or the whole answer has more than 32 million characters.",
            "Raise `max_event`, or ask for a smaller answer.",
        ),
    },
    "The local model": {
        "local_unavailable": ErrorRow(
            _LOCAL, "operator", "The model on the gateway's machine cannot run.", "The message says how to correct it."
        ),
        "local_busy": ErrorRow(
            _LOCAL, "gateway", "Too many calls wait for the model on the gateway's machine.", _RETRY_LATER
        ),
        "local_failed": ErrorRow(_LOCAL, "gateway", "The model on the gateway's machine failed.", _RETRY),
        "local_text_only": ErrorRow(
            _BAD_REQUEST,
            "client",
            "The model on the gateway's machine takes text, but no images, audio or files. The next target of the "
            "route is tried.",
            "Use another model.",
        ),
        "context_length_exceeded": ErrorRow(
            _BAD_REQUEST,
            "client",
            "The request is longer than the context of the model.",
            "Shorten the conversation; for the model on the gateway's machine, raise `context` of the provider.",
        ),
    },
    "The gateway": {
        "gateway_overloaded": ErrorRow(
            _LOCAL, "operator", "The gateway has no file descriptor left for another connection.", _RETRY
        ),
        "gateway_draining": ErrorRow(_UNAVAILABLE, "operator", "The gateway is shutting down.", _RETRY_LATER),
        "too_many_connections": ErrorRow(
            {503: "invalid_request_error"},
            "operator",
            "The gateway has as many client connections as it accepts.",
            "Use fewer connections, or retry.",
        ),
        "ledger_unavailable": ErrorRow(
            _UNAVAILABLE,
            "operator",
            "The gateway cannot read or write its ledger, and refuses a call that it could not account for.",
            _RETRY_LATER,
        ),
        "content_unavailable": ErrorRow(
            _UNAVAILABLE,
            "operator",
            "The gateway cannot read the responses that it keeps.",
            _RETRY_LATER,
        ),
        "stopped_by_operator": ErrorRow(
            _UNAVAILABLE, "operator", "An operator stopped this call.", "Ask the operator before you retry."
        ),
        "internal_error": ErrorRow(
            {500: "server_error"},
            "gateway",
            "A bug in the gateway. Its log has the details.",
            "Report it with the `request_id`.",
        ),
    },
    "The admin API": {
        "invalid_admin_token": ErrorRow(
            _UNAUTHORIZED,
            "client",
            "The admin token or API token is missing, wrong or expired, and there is no session.",
            "Send a valid token, or sign in.",
        ),
        "permission_denied": ErrorRow(
            _FORBIDDEN,
            "client",
            "The role of this user or token does not allow the request.",
            "Ask an administrator for a role.",
        ),
        "page_not_proven": ErrorRow(
            _FORBIDDEN,
            "client",
            "A session of the page wants to change something without `x-penstock-page: 1` and the page's own `origin` "
            "(a guard against CSRF).",
            "Send both, or use the admin token.",
        ),
        "content_not_allowed": ErrorRow(
            _FORBIDDEN,
            "operator",
            "The text of calls is only shown if the configuration allows it.",
            "Set `content = true` in `[admin]`.",
        ),
        "invalid_parameter": ErrorRow(
            _BAD_REQUEST, "client", "A query parameter or the body is wrong; `param` names it.", "Correct it."
        ),
        "invalid_key_terms": ErrorRow(
            _BAD_REQUEST, "client", "A key cannot have these terms; `param` names the wrong one.", "Correct it."
        ),
        "unreadable": ErrorRow(
            _BAD_REQUEST, "client", "The body cannot be inspected: it is neither a stream nor a capture.", "Correct it."
        ),
        "key_not_found": ErrorRow(_NOT_FOUND, "client", "There is no such key.", "Check the id."),
        "team_not_found": ErrorRow(_NOT_FOUND, "client", "There is no such team.", "Check its path, or create it."),
        "team_in_use": ErrorRow(
            _CONFLICT, "client", "The team has keys, or teams below it.", "Revoke or move these first."
        ),
        "token_not_found": ErrorRow(_NOT_FOUND, "client", "There is no such API token.", "Check the id."),
        "session_not_found": ErrorRow(
            _NOT_FOUND, "client", "No user of that name has a session.", "List them: GET /admin/sessions."
        ),
        "query_too_slow": ErrorRow(
            _BAD_REQUEST,
            "client",
            "The ledger could not answer a query within its time limit of 15 seconds.",
            "Ask for a shorter time range, or for fewer conditions.",
        ),
        "entry_not_found": ErrorRow(_NOT_FOUND, "client", "The ledger has no such entry.", "Check the id."),
        "content_not_kept": ErrorRow(
            _NOT_FOUND,
            "client",
            "No content of this call is kept.",
            "Check the id. The rules in `[content]` say which calls are kept, and for how long.",
        ),
        "capture_not_kept": ErrorRow(
            _NOT_FOUND,
            "client",
            "There is no capture of this attempt of the call: it was not recorded, or it was deleted since.",
            "Record with `--record`. `[captures]` says how long captures are kept.",
        ),
        "user_not_found": ErrorRow(
            _NOT_FOUND, "client", "No end user has this name or pseudonym.", "Check the name: it may be erased."
        ),
        "call_not_found": ErrorRow(
            _NOT_FOUND, "client", "No such call is running.", "Look for it in the ledger: it may have ended."
        ),
        "member_not_found": ErrorRow(
            _NOT_FOUND, "client", "No member of the team has this id or name.", "Check the name."
        ),
        "request_not_found": ErrorRow(_NOT_FOUND, "client", "No request for more has this id.", "Check the id."),
        "request_answered": ErrorRow(
            _CONFLICT, "client", "The request for more was answered, withdrawn, or has expired.", "Make a new one."
        ),
        "too_many_open_requests": ErrorRow(
            _CONFLICT, "client", "Five requests for more of this member wait for an answer.", "Withdraw one, or wait."
        ),
        "key_policy": ErrorRow(
            _FORBIDDEN,
            "client",
            "The key would exceed the [policy](teams.md#keys-of-members) of its team for keys of members.",
            "Choose less, or ask an administrator for more.",
        ),
        "name_taken": ErrorRow(_CONFLICT, "client", "Another key has this name.", "Choose another name."),
        "plan_changed": ErrorRow(
            _CONFLICT, "client", "Teams or keys were changed since the plan was made.", "Make a new plan."
        ),
        "ambiguous": ErrorRow(_CONFLICT, "client", "Several keys have this name.", "Use the id of one."),
        "key_unusable": ErrorRow(
            _CONFLICT, "client", "The key is revoked or has expired and cannot be changed.", "Create a new key."
        ),
        "admin_busy": ErrorRow(
            _UNAVAILABLE, "gateway", "Too many requests wait for the ledger's database.", _RETRY_LATER
        ),
        "inspector_busy": ErrorRow(_UNAVAILABLE, "gateway", "Too many inspections are running.", _RETRY_LATER),
        "inspection_timeout": ErrorRow(
            {504: "server_error"},
            "gateway",
            "The inspection took too long.",
            "Run `penstock inspect` on the file instead.",
        ),
        "too_many_watchers": ErrorRow(
            _UNAVAILABLE, "gateway", "Too many live views are open.", "Close one, then reload."
        ),
    },
    "Only in the log and the ledger": {
        "client_gone": ErrorRow(
            {499: "upstream_error"}, "client", "The client closed the connection before the answer was complete.", "–"
        ),
        "gateway_died": ErrorRow(
            _UNAVAILABLE,
            "gateway",
            "The gateway's process ended while the call was running (`kill -9`, power). The next start books the call. "
            "Readers of a [durable stream](streams.md#limits) in a file get this error as its end.",
            "Send the request again.",
        ),
        "upstream_stale": ErrorRow(
            _UPSTREAM,
            "provider",
            "A pooled connection was already closed by the provider. The request is sent again on a new one.",
            "–",
        ),
    },
}
ERRORS: dict[ErrorCode, ErrorRow] = {code: row for group in ERROR_GROUPS.values() for code, row in group.items()}
