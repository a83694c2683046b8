"""OtelNames: attribute and metric names of the OpenTelemetry semantic conventions for generative AI, as constants.

The conventions have the status *development* and may change, so all names are in this module and only here. Attributes
that the conventions do not define have the prefix `penstock.`.
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

# Content; exported only if `[telemetry] content` is set.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"

# Sampling parameters of a request, and the attribute of each.
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
# Provider names of the conventions, where they differ from ours.
PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure-anthropic": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex": "gcp.vertex_ai",
    "vertex-anthropic": "gcp.vertex_ai",
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
    DURATION: "Duration of an attempt at a provider.",
    FIRST_CHUNK: "Time from the start of an attempt to the first content of its stream.",
    PER_CHUNK: "Time between two chunks of a stream.",
    TOKEN_USAGE: "Tokens used by an attempt.",
}

# Attributes of Penstock.
REQUEST_ID = "penstock.request.id"
ROUTE = "penstock.route"
KEY = "penstock.key.id"
OUTCOME = "penstock.outcome"
CODE = "penstock.code"
ATTEMPTS = "penstock.attempts"
ATTEMPT = "penstock.attempt"
DIALECT = "penstock.dialect"
COST = "penstock.cost_usd"
MEASURE = "penstock.measure"
EVENTS = "penstock.events"
LONGEST_GAP = "penstock.longest_gap"
REPAIRS = "penstock.repairs"
FINDINGS = "penstock.findings"
NOTICES = "penstock.notices"
LOSSES = "penstock.losses"


def has_answers(surface: str) -> bool:
    """Whether calls of a surface generate answers, as opposed to embeddings."""
    return surface != _EMBEDDINGS


def operation_of(surface: str) -> str:
    """The operation name of the conventions for calls of a surface."""
    return "chat" if has_answers(surface) else "embeddings"


def route_of(surface: str) -> str:
    """The HTTP path of a surface."""
    paths = {dialect.surface.name: dialect.surface.path for dialect in DIALECTS.values() if dialect.surface is not None}
    return f"/v1{paths.get(surface, '/embeddings')}"
