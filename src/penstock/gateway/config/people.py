"""The settings for users of the admin API, the roles of their groups; and for clients that authenticate with a JWT."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, get_args

from msgspec import Meta, Struct

from penstock.gateway.config.addresses import Address, parse_url
from penstock.gateway.config.problems import Problems
from penstock.gateway.config.toml import Path
from penstock.gateway.keys.team_path import is_team_path
from penstock.gateway.people.group_roles import GroupSettings, PatternSettings, pattern_problems
from penstock.gateway.people.roles import TEAM_ROLES
from penstock.providers.secret import Secret

# Signatures with a private key only. With HMAC, the public key itself would sign.
Algorithm: TypeAlias = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519", "EdDSA"
]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)


class JwtSettings(Struct, frozen=True, kw_only=True):
    """JWTs with which clients authenticate, in place of a key."""

    issuer: str = ""
    """The issuer (`iss`) of the tokens: an `https` URL, exactly as tokens have it."""
    audience: str = ""
    """The audience (`aud`) that a token must name."""
    jwks: str = ""
    """The URL of the signing keys. Default: as the issuer's discovery document says."""
    algorithms: tuple[Algorithm, ...] = ("RS256", "ES256")
    """The accepted signatures. All need a private key: `none` and HMAC are not possible."""
    team_claim: str = "groups"
    """The claim that says which team a client belongs to: a string or a list."""
    teams: Mapping[str, str] = {}
    """The team for each value of this claim: `{ "search-developers" = "acme/search" }`."""
    user_claim: str = "sub"
    """The claim with the end user of the calls. `""` takes the user that the client names."""


class OidcSettings(Struct, frozen=True, kw_only=True):
    """An identity provider with which users sign in on the page."""

    issuer: str = ""
    """The issuer: an `https` URL, exactly as its discovery document has it."""
    client_id: str = ""
    """The client id that the provider gave to Penstock."""
    client_secret: Secret | None = None
    """The client secret that the provider gave to Penstock. Without one, Penstock is a public client."""
    scopes: tuple[str, ...] = ("email", "profile")
    """The scopes to request, besides `openid`."""
    groups_claim: str = "groups"
    """The claim with the user's groups."""
    user_claim: str = "email"
    """The claim with the user's name."""
    session_hours: Annotated[float, Meta(gt=0, le=720)] = 12.0
    """Hours after which a user has to sign in again."""


class AuthSettings(Struct, frozen=True, kw_only=True):
    """How clients authenticate, besides with keys."""

    jwt: JwtSettings | None = None
    """Accepts [JWTs of an identity provider](people.md#clients-with-a-jwt): the table `[auth.jwt]`. It needs the
    packages `joserfc` and `requests` (the extra `oidc`)."""


def check_group(name: str, given: dict[str, object], problems: Problems) -> GroupSettings | None:
    """The settings of a group; None if they are wrong."""
    path = ("admin", "groups", name)
    role, team = given.get("role"), str(given.get("team", ""))
    if role is None:
        problems.error(path, "needs a role: viewer, operator, admin, member or team_admin")
        return None
    if (role in TEAM_ROLES) != bool(team):
        problems.error(path, f"the role {role} needs a team" if not team else f"the role {role} has no team")
        return None
    if team and not is_team_path(team):
        problems.error((*path, "team"), "must be the path of a team, such as acme/search")
        return None
    return GroupSettings(**given)  # type: ignore[arg-type]  # read by the same types


def check_patterns(given: Mapping[str, dict[str, Any]], problems: Problems) -> dict[str, PatternSettings]:
    """The patterns of groups that are right, in the order of the file."""
    found: dict[str, PatternSettings] = {}
    for name, each in given.items():
        path = ("admin", "group_patterns", name)
        if "pattern" not in each:
            problems.error(path, "needs a pattern, such as 'llm-(?<team>.+)-(admin|member)'")
            continue
        pattern = PatternSettings(**each)
        wrong = pattern_problems(pattern)
        for setting, message in wrong:
            given_here = setting in each
            problems.error((*path, setting) if given_here else path, message if given_here else f"{setting} {message}")
        same = next((other for other, earlier in found.items() if earlier.pattern == pattern.pattern), "")
        if same:
            problems.error((*path, "pattern"), f"is that of {same}, which comes first: no group would reach this one")
        elif not wrong:
            found[name] = pattern
    return found


def load_auth(given: dict[str, Any], problems: Problems) -> AuthSettings:
    """The settings for clients."""
    table = given.get("jwt")
    if table is None:
        return AuthSettings()
    jwt = JwtSettings(**table)
    path: Path = ("auth", "jwt")
    for name, value in (("issuer", jwt.issuer), ("audience", jwt.audience)):
        if not value:
            problems.error(path, f"needs {name}")
    for name, value in (("issuer", jwt.issuer), ("jwks", jwt.jwks)):
        if value:
            check_identity_url((*path, name), value, problems)
    if not jwt.algorithms:
        problems.error((*path, "algorithms"), "needs at least one")
    if not jwt.teams:
        problems.error(path, 'needs teams, such as teams = { "search-developers" = "acme/search" }')
    for name, team in jwt.teams.items():
        if not is_team_path(str(team)):
            problems.error((*path, "teams", name), "must be the path of a team, such as acme/search")
    return AuthSettings(jwt=jwt)


def load_oidc(given: dict[str, Any] | None, problems: Problems) -> OidcSettings | None:
    """The settings for users of the page."""
    if given is None:
        return None
    oidc = OidcSettings(**given)
    path: Path = ("admin", "oidc")
    for name, value in (("issuer", oidc.issuer), ("client_id", oidc.client_id)):
        if not value:
            problems.error(path, f"needs {name}")
    if oidc.issuer:
        check_identity_url((*path, "issuer"), oidc.issuer, problems)
    return oidc


def check_identity_url(path: Path, url: str, problems: Problems) -> None:
    """Report a URL of an identity provider that cannot be used, or that others on the network could answer."""
    try:
        parts = parse_url(url)
    except ValueError as error:
        problems.error(path, str(error))
        return
    local = parts.hostname == "localhost" or Address(parts.hostname or "", 0).local
    if parts.scheme != "https" and not local:
        problems.error(path, "must begin with https://, except on this machine")
