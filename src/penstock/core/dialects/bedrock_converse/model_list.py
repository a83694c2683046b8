"""The dialect of Amazon Bedrock, lists of models: `GET /foundation-models`."""

from collections.abc import Mapping

from penstock.core.dialects.dialect import ListedModel, ModelList

_PATH = "/foundation-models"


class BedrockModelList(ModelList):
    """Models in Bedrock's form."""

    path = _PATH
    member = "modelSummaries"

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API: only it has this path."""
        return path.startswith(_PATH)

    def model(self, model: ListedModel) -> dict[str, object]:
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

    def write_model(self, model: ListedModel) -> dict[str, object]:
        """The JSON of one model."""
        return {"modelDetails": self.model(model)}
