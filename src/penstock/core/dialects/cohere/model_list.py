"""The dialect of Cohere, lists of models: `GET /v1/models`."""

from collections.abc import Mapping

from penstock.core.dialects.dialect import ListedModel, ModelList


class CohereModelList(ModelList):
    """Models in Cohere's form."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API. The path is OpenAI's, too; Cohere's packages name themselves."""
        return headers.get("x-fern-sdk-name", "").startswith("cohere")

    def model(self, model: ListedModel) -> dict[str, object]:
        """A model, which every client may call."""
        return {"name": model.id, "endpoints": ["chat"], "finetuned": False, "is_deprecated": False}
