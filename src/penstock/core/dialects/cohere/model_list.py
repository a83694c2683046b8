"""The dialect of Cohere, lists of models: `GET /v1/models`."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.core.dialects.dialect import ListedModel


class CohereModelList:
    """A list of models in Cohere's form: one page with all of them."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API. The path is OpenAI's, too; Cohere's packages name themselves."""
        return headers.get("x-fern-sdk-name", "").startswith("cohere")

    def write_list(self, models: Sequence[ListedModel]) -> bytes:
        """The body of a whole list."""
        return msgspec.json.encode({"models": [_model(model) for model in models]})

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""
        return msgspec.json.encode(_model(model))


def _model(model: ListedModel) -> dict[str, object]:
    return {"name": model.id, "endpoints": ["chat"], "finetuned": False, "is_deprecated": False}
