"""The dialect of Amazon Bedrock, lists of models: `GET /foundation-models`."""

from collections.abc import Mapping, Sequence

import msgspec

from penstock.core.dialects.dialect import ListedModel

_PATH = "/foundation-models"


class BedrockModelList:
    """A list of models in Bedrock's form: one page with all of them."""

    path = _PATH

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API: only it has this path."""
        return path.startswith(_PATH)

    def write_list(self, models: Sequence[ListedModel]) -> bytes:
        """The body of a whole list."""
        return msgspec.json.encode({"modelSummaries": [_model(model) for model in models]})

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""
        return msgspec.json.encode({"modelDetails": _model(model)})


def _model(model: ListedModel) -> dict[str, object]:
    """A model. The gateway offers it, so it is active, and every model can be streamed."""
    return {
        "modelArn": f"arn:aws:bedrock:::foundation-model/{model.id}",
        "modelId": model.id,
        "modelName": model.id,
        "providerName": model.id.partition("/")[0],
        "inputModalities": ["TEXT"],
        "outputModalities": ["TEXT"],
        "responseStreamingSupported": True,
        "inferenceTypesSupported": ["ON_DEMAND"],
        "modelLifecycle": {"status": "ACTIVE"},
    }
