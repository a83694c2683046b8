"""The Anthropic Messages dialect, lists of models: `GET /v1/models`."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from penstock.core.dialects.dialect import ListedModel, ModelList


class AnthropicModelList(ModelList):
    """Models in Anthropic's form."""

    member = "data"

    def applies_to(self, headers: Mapping[str, str], path: str) -> bool:  # noqa: ARG002
        """Whether a client speaks this API: all its clients send a version."""
        return "anthropic-version" in headers

    def model(self, model: ListedModel) -> dict[str, object]:
        """A model. The gateway offers it, so it is `active`; what its provider plans with it is not known."""
        created = datetime.fromtimestamp(model.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        named: dict[str, object] = {"type": "model", "id": model.id, "display_name": model.id}
        return named | {"created_at": created, "lifecycle": "active"}

    def write_list(self, models: Sequence[ListedModel]) -> dict[str, object]:
        """The JSON of a whole list."""
        first, last = (models[0].id, models[-1].id) if models else (None, None)
        return super().write_list(models) | {"has_more": False, "first_id": first, "last_id": last}
