"""ScimError: why a request over SCIM is refused."""

from typing import Literal, TypeAlias

from penstock.errors import AdminError

ScimType: TypeAlias = Literal["invalidFilter", "invalidPath", "invalidSyntax", "invalidValue", "noTarget", "uniqueness"]


class ScimError(AdminError):
    """A request over SCIM is not valid: it is refused with 400, and a type that RFC 7644 defines."""

    def __init__(self, message: str, scim_type: ScimType) -> None:
        super().__init__(message, code="invalid_parameter")
        self.scim_type = scim_type
