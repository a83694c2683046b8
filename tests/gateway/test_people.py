"""Roles, the keys that they include, and API tokens."""

import pytest

from penstock.errors import AdminError
from penstock.gateway.keys.key_secret import is_mistyped
from penstock.gateway.keys.keys import Key
from penstock.gateway.people.audit import Actor, key_change
from penstock.gateway.people.roles import Principal, RoleGrant, Scope
from penstock.gateway.people.tokens import TOKEN_PREFIX, TokenTerms, make_token

NOW_MS = 1_800_000_000_000


def key(team: str, owner: str = "", **more: object) -> Key:
    return Key(id="key_1", name="k", digest=b"d" * 32, hint="abcd", created_ms=1, team=team, owner=owner, **more)  # type: ignore[arg-type]


def test_of_several_groups_a_user_has_the_strongest_role() -> None:
    grants = [RoleGrant("operator"), RoleGrant("viewer"), RoleGrant("team_admin", "acme"), RoleGrant("member", "acme")]
    user = Principal.of("ann", "session", grants)
    assert (user.role, user.teams) == ("operator", {"acme": "team_admin"})


def test_a_role_does_not_leave_its_kind() -> None:
    """A global role never comes from a team, nor a role in a team without one."""
    user = Principal.of("ann", "session", [RoleGrant("admin", "acme"), RoleGrant("team_admin", "")])
    assert (user.role, user.teams) == (None, {})
    assert not any(user.may(each) for each in ("read", "operate", "content", "manage"))


@pytest.mark.parametrize(
    ("team", "owner", "as_member", "as_team_admin"),
    [
        ("acme/search", "ann", True, True),
        ("acme/search", "bob", False, True),
        ("acme/search/index", "ann", True, True),
        ("acme/search/index", "", False, True),
        ("acme/searching", "ann", False, False),
        ("acme", "ann", False, False),
        ("other/search", "ann", False, False),
        ("", "ann", False, False),
    ],
)
def test_a_role_in_a_team_includes_its_keys_and_no_others(
    team: str, owner: str, as_member: bool, as_team_admin: bool
) -> None:
    assert Scope(owner="ann", teams={"acme/search": "member"}).covers(key(team, owner)) is as_member
    assert Scope(owner="ann", teams={"acme/search": "team_admin"}).covers(key(team, owner)) is as_team_admin


@pytest.mark.parametrize(
    ("owner", "covered"),
    [
        ("ann@acme.com <8f3e>", True),
        ("ann.new@acme.com <8f3e>", True),  # the name has changed since
        ("8f3e", True),
        ("ann@acme.com <other>", False),  # the same name, given to another user
        ("ann@acme.com", False),
        ("", False),
    ],
)
def test_a_key_belongs_to_the_id_of_its_user(owner: str, covered: bool) -> None:
    scope = Scope(owner="ann@acme.com <8f3e>", teams={"acme/search": "member"})
    assert scope.covers(key("acme/search", owner)) is covered


def test_a_token_with_the_name_of_another_one_does_not_own_its_keys() -> None:
    terms = TokenTerms(name="ci", role="member", team="acme/search")
    first, second = (make_token(terms, "root", NOW_MS).token.principal for _ in range(2))
    made = key("acme/search", first.name)
    assert first.scope.covers(made)
    assert not second.scope.covers(made)


def test_the_stronger_role_of_a_team_and_of_one_above_counts() -> None:
    scope = Scope(owner="ann", teams={"acme": "team_admin", "acme/search": "member"})
    assert scope.covers(key("acme/search", "bob"))


def test_a_token_is_recognised_and_its_secret_is_not_stored() -> None:
    secret, token = make_token(TokenTerms(name="ci", role="member", team="acme/search"), "root", NOW_MS)
    assert secret.startswith(TOKEN_PREFIX)
    assert not is_mistyped(secret, TOKEN_PREFIX)
    assert is_mistyped(f"{secret[:-1]}x", TOKEN_PREFIX)
    assert secret not in str(token)
    name = f"token:ci <{token.id}>"
    assert token.principal == Principal(name=name, via="API token", teams={"acme/search": "member"})
    assert not token.unusable(NOW_MS)
    assert token.unusable(NOW_MS + 91 * 86_400_000)


@pytest.mark.parametrize(
    ("terms", "param"),
    [
        (TokenTerms(name="ci", role="member"), "team"),
        (TokenTerms(name="ci", role="admin", team="acme"), "team"),
        (TokenTerms(name="ci", role="member", team="../acme"), "team"),
        (TokenTerms(name="ci", role="member", team="acme//x"), "team"),
        (TokenTerms(name="", role="viewer"), "name"),
        (TokenTerms(name="ci", role="viewer", expires="2001-01-01"), "expires"),
    ],
)
def test_wrong_terms_of_a_token_are_refused(terms: TokenTerms, param: str) -> None:
    with pytest.raises(AdminError) as error:
        make_token(terms, "root", NOW_MS)
    assert error.value.param == param


def test_the_record_of_a_change_has_what_changed_and_no_secret() -> None:
    actor = Actor("ann", "session", "192.0.2.1")
    made = key_change(actor, NOW_MS, None, key("acme"))
    assert made is not None
    assert (made.action, made.subject, made.before) == ("key.create", "key_1", {})
    assert not {"digest", "previous"} & set(made.after)
    changed = key_change(actor, NOW_MS, key("acme"), key("acme", budget=5_000_000_000))
    assert changed is not None
    assert (changed.action, changed.before, changed.after) == ("key.update", {"budget": None}, {"budget": "5.00"})
    assert key_change(actor, NOW_MS, key("acme"), key("acme")) is None
