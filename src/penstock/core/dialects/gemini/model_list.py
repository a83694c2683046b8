"""The Gemini dialect, lists of models: `GET /v1beta/models`."""

from collections.abc import Mapping

from penstock.core.dialects.dialect import ListedModel, ModelList

_VERSIONS = ("/v1beta/", "/v1alpha/", "/gemini/")
_METHODS = ["generateContent", "countTokens"]


class GeminiModelList(ModelList):
    """Models in Gemini's form."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:
        """Whether a client speaks this API: it sends a header of Google, or uses a version that only this API has."""
        return "x-goog-api-key" in headers or "x-goog-api-client" in headers or path.startswith(_VERSIONS)

    def model(self, model: ListedModel) -> dict[str, object]:
        """A model, with what clients may ask of it."""
        return {"name": f"models/{model.id}", "displayName": model.id, "supportedGenerationMethods": _METHODS}
