"""The forms in which clients of each API expect lists of models."""

from penstock.core.dialects.dialect import ListedModel, ModelList
from penstock.core.dialects.registry import DIALECTS

MODELS = [ListedModel("one/m", 1_767_225_600), ListedModel("two", 1_767_225_600)]


def of(dialect: str) -> ModelList:
    listing = DIALECTS[dialect].model_list
    assert listing is not None
    return listing


def test_the_messages_api_has_times_and_the_ends_of_the_page() -> None:
    listing = of("anthropic_messages")
    one, two = (
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
        }
        for name in ("one/m", "two")
    )
    assert listing.write_model(MODELS[0]) == one
    assert listing.write_list(MODELS) == {"data": [one, two], "has_more": False, "first_id": "one/m", "last_id": "two"}
    assert listing.write_list([]) == {"data": [], "has_more": False, "first_id": None, "last_id": None}


def test_gemini_has_methods() -> None:
    listing, methods = of("gemini"), ["generateContent", "countTokens"]
    one, two = (
        {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": methods}
        for name in ("one/m", "two")
    )
    assert (listing.write_model(MODELS[0]), listing.write_list(MODELS)) == (one, {"models": [one, two]})


def test_cohere_has_endpoints() -> None:
    listing = of("cohere")
    one, two = (
        {"name": name, "endpoints": ["chat"], "finetuned": False, "is_deprecated": False} for name in ("one/m", "two")
    )
    assert (listing.write_model(MODELS[0]), listing.write_list(MODELS)) == (one, {"models": [one, two]})


def test_bedrock_names_a_model_apart_from_those_of_a_list() -> None:
    listing = of("bedrock_converse")
    summaries = listing.write_list(MODELS)["modelSummaries"]
    assert isinstance(summaries, list)
    assert [(model["modelId"], model["providerName"]) for model in summaries] == [("one/m", "one"), ("two", "two")]
    assert summaries[0]["modelArn"] == "arn:aws:bedrock:::foundation-model/one/m"
    assert summaries[0]["responseStreamingSupported"] is True
    assert listing.write_model(MODELS[0]) == {"modelDetails": summaries[0]}


def test_a_client_is_known_by_its_headers_or_its_path() -> None:
    def forms(headers: dict[str, str], path: str = "/v1/models") -> list[str]:
        return [
            name
            for name, dialect in DIALECTS.items()
            if dialect.model_list is not None and dialect.model_list.applies_to(headers, path)
        ]

    assert forms({}) == []
    assert forms({"anthropic-version": "2023-06-01"}) == ["anthropic_messages"]
    assert forms({"x-goog-api-key": "k"}) == forms({"x-goog-api-client": "c"}) == ["gemini"]
    assert forms({}, "/v1beta/models") == forms({}, "/v1alpha/models") == forms({}, "/gemini/models") == ["gemini"]
    assert forms({"x-fern-sdk-name": "cohere-python"}) == ["cohere"]
    assert forms({"x-fern-sdk-name": "another"}) == []
    assert forms({}, "/foundation-models/one") == ["bedrock_converse"]
