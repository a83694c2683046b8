"""Conventions: the names that OpenTelemetry has for calls of language models, as constants of ours.

They are *in development*: they may change, and stand here alone so that they change in one place. What a gateway knows
and they have no name for begins with `penstock.`.
"""

from penstock.core.dialects.registry import DIALECTS

SCHEMA_URL = ""
SCOPE = "penstock"

# A client's request.
HTTP_METHOD = "http.request.method"
HTTP_ROUTE = "http.route"
HTTP_STATUS = "http.response.status_code"
ERROR_TYPE = "error.type"

# An attempt.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_CREATION_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
TOKEN_TYPE = "gen_ai.token.type"

# Content, which is told only where somebody has asked for it.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

# The fields of a request that say how to answer, and what each is called.
PARAMETERS = {
    "max_tokens": "gen_ai.request.max_tokens",
    "max_completion_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "n": "gen_ai.request.choice.count",
    "frequency_penalty": "gen_ai.request.frequency_penalty",
    "presence_penalty": "gen_ai.request.presence_penalty",
}
# What they call a provider, where it is not what we do.
PROVIDERS = {
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
_EMBEDDINGS = "embeddings"

# Histograms: in seconds, and in tokens.
DURATION = "gen_ai.client.operation.duration"
FIRST_CHUNK = "gen_ai.client.operation.time_to_first_chunk"
PER_CHUNK = "gen_ai.client.operation.time_per_output_chunk"
TOKEN_USAGE = "gen_ai.client.token.usage"
TIME_BOUNDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
TOKEN_BOUNDS = tuple(float(4**power) for power in range(14))
UNITS = {DURATION: "s", FIRST_CHUNK: "s", PER_CHUNK: "s", TOKEN_USAGE: "{token}"}
DESCRIPTIONS = {
    DURATION: "How long an attempt at a provider took.",
    FIRST_CHUNK: "From an attempt's beginning to the first chunk of its stream.",
    PER_CHUNK: "Between two chunks of a stream.",
    TOKEN_USAGE: "Tokens that an attempt consumed.",
}

# Ours.
REQUEST_ID = "penstock.request.id"
ROUTE = "penstock.route"
KEY = "penstock.key.id"
OUTCOME = "penstock.outcome"
CODE = "penstock.code"
ATTEMPTS = "penstock.attempts"
ATTEMPT = "penstock.attempt"
COST = "penstock.cost_usd"
MEASURE = "penstock.measure"
EVENTS = "penstock.events"
LONGEST_GAP = "penstock.longest_gap"
REPAIRS = "penstock.repairs"
NOTICES = "penstock.notices"
LOSSES = "penstock.losses"


def has_answers(surface: str) -> bool:
    """Whether models are asked for answers there, and not for embeddings."""
    return surface != _EMBEDDINGS


def operation_of(surface: str) -> str:
    """What the calls of a surface are, as the conventions name it."""
    return "chat" if has_answers(surface) else "embeddings"


def route_of(surface: str) -> str:
    """Where the requests of a surface are posted."""
    paths = {dialect.surface.name: dialect.surface.path for dialect in DIALECTS.values() if dialect.surface is not None}
    return f"/v1{paths.get(surface, '/embeddings')}"
