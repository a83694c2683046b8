"""Deployments of clouds: LiteLLM has their region, project and credentials as fields of a deployment.

Each function completes the table of a provider, reports these fields, and returns the built-in provider and the model;
None if Penstock has no provider for the model.
"""

import re
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from penstock.cli.litellm.findings import Section
from penstock.cli.litellm.toml_text import literal
from penstock.cli.litellm.variables import Variables
from penstock.providers.catalog import catalog

CloudModel: TypeAlias = tuple[str, str]
Cloud: TypeAlias = Callable[[Section, Variables, str, dict[str, Any]], CloudModel | None]

_BEDROCK = "bedrock"
_REGION = re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d)/(.+)")
_AWS_REGION = "${AWS_REGION:-us-east-1}"
_ROLE = "[profile {profile}] role_arn = {role}, and source_profile or credential_source"
_AWS_SECRETS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_AWS_OTHERS = ("aws_session_name", "aws_web_identity_token", "aws_sts_endpoint", "aws_external_id")
# LiteLLM's variables and its default; the built-in providers read others.
_PROJECT, _LOCATION = "${VERTEXAI_PROJECT}", "${VERTEXAI_LOCATION:-us-central1}"
_VERTEX = (("gemini-*", "vertex"), ("claude-*", "vertex-anthropic"))


def bedrock(section: Section, variables: Variables, model: str, table: dict[str, Any]) -> CloudModel | None:
    """Amazon Bedrock: requests are signed, unless the deployment has an API key."""
    for route in ("converse/", "invoke/"):
        model = model.removeprefix(route)
    named = _REGION.fullmatch(model)
    region: object = None
    if named is not None:
        region, model = named[1], named[2]
    if (given := section.take("aws_region_name")) is not None:
        region = given
        section.taken("aws_region_name", "the address of the provider")
    if region is not None:
        address = str(catalog()[_BEDROCK]["base_url"])
        table["base_url"] = address.replace(_AWS_REGION, str(variables.plain(region)))
        table["dialects"] = catalog()[_BEDROCK]["dialects"]  # the server is the same one
    if section.peek("api_key") is not None:
        return _BEDROCK, model
    table["auth"] = "aws"
    if (profile := section.take("aws_profile_name")) is not None:
        table["profile"] = variables.plain(profile)
        section.taken("aws_profile_name", "profile of the provider")
    if (role := section.take("aws_role_name")) is not None:
        table["profile"] = str(role).rpartition("/")[2] if variables.reference(role) is None else "litellm"
        note = _ROLE.format(profile=table["profile"], role=variables.reference(role) or role)
        section.approximated("aws_role_name", f"write this profile into AWS's config file: {note}")
    for name in _AWS_SECRETS:
        value = section.take(name)
        if value is None:
            continue
        if variables.reference(value) == f"${{{name.upper()}}}":
            section.taken(name)
        else:
            section.approximated(name, f"not copied: set the variable {name.upper()} to this secret, or a profile")
            variables.needed(name.upper(), f"the value of {section.field(name)}")
    for name in _AWS_OTHERS:
        if section.take(name) is not None:
            section.approximated(name, "write it into the profile in AWS's config file")
    return _BEDROCK, model


def vertex(section: Section, variables: Variables, model: str, table: dict[str, Any]) -> CloudModel | None:
    """Vertex AI: Gemini and Claude, with Google's application-default credentials."""
    name = next((name for pattern, name in _VERTEX if fnmatchcase(model, pattern)), None)
    if name is None:
        return None
    address = str(catalog()[name]["base_url"])
    for field, variable, default in (
        ("vertex_project", "${GOOGLE_CLOUD_PROJECT}", _PROJECT),
        ("vertex_location", "${GOOGLE_CLOUD_LOCATION:-global}", _LOCATION),
    ):
        given = section.take(field)
        if given is not None:
            section.taken(field, "the address of the provider")
        elif field == "vertex_project":
            variables.needed("VERTEXAI_PROJECT")
        address = address.replace(variable, str(variables.plain(given)) if given is not None else default)
    table["base_url"] = address
    credentials = section.take("vertex_credentials")
    if credentials is not None:
        note = "set the variable GOOGLE_APPLICATION_CREDENTIALS to a file with these credentials"
        section.approximated("vertex_credentials", note)
        variables.needed("GOOGLE_APPLICATION_CREDENTIALS", "a file with the credentials of vertex_credentials")
    return name, literal(model)
