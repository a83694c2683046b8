"""The Anthropic Messages dialect, lists of models: `GET /v1/models`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from penstock.core.dialects.dialect import ListedModel


class AnthropicModelList:
    """A list of models in Anthropic's form: one page with all of them."""

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API: all its clients send a version."""
        return "anthropic-version" in headers

    def write_list(self, models: Sequence[ListedModel]) -> bytes:
        """The body of a whole list."""
        data = [_model(model) for model in models]
        first, last = (models[0].id, models[-1].id) if models else (None, None)
        return msgspec.json.encode({"data": data, "has_more": False, "first_id": first, "last_id": last})

    def write_model(self, model: ListedModel) -> bytes:
        """The body of one model."""
        return msgspec.json.encode(_model(model))


def _model(model: ListedModel) -> dict[str, object]:
    """A model. The gateway offers it, so it is `active`; what its provider plans with it is not known."""
    created = datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    named: dict[str, object] = {"type": "model", "id": model.id, "display_name": model.id}
    return named | {"created_at": created, "lifecycle": "active"}
