"""The Gemini dialect, lists of models: `GET /v1beta/models`."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.core.dialects.dialect import ListedModel

_VERSIONS = ("/v1beta/", "/v1alpha/", "/gemini/")
_METHODS = ["generateContent", "countTokens"]


class GeminiModelList:
    """A list of models in Gemini's form: one page with all of them."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:
        """Whether a client speaks this API: it sends a header of Google, or uses a version that only this API has."""
        return "x-goog-api-key" in headers or "x-goog-api-client" in headers or path.startswith(_VERSIONS)

    def write_list(self, models: Sequence[ListedModel]) -> bytes:
        """The body of a whole list."""
        return msgspec.json.encode({"models": [_model(model) for model in models]})

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""
        return msgspec.json.encode(_model(model))


def _model(model: ListedModel) -> dict[str, object]:
    return {"name": f"models/{model.id}", "displayName": model.id, "supportedGenerationMethods": _METHODS}
