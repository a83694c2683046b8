"""Roles by groups: rows of one group, patterns of names, and which of them decides."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.gateway.people.group_pattern import MAX_NAME, compile_pattern, matched
from penstock.gateway.people.group_roles import GroupRoles, GroupSettings, PatternSettings
from penstock.gateway.people.roles import RoleGrant

LLM = PatternSettings(pattern="llm-(?<team>.+)-(admin|member)", team="acme/{team}", create_teams=True)
ROLES = GroupRoles(
    {"llm-ops-admin": GroupSettings(role="admin")},
    {
        "llm": LLM,
        "projects": PatternSettings(pattern=r"(?P<team>\w+)/(?P<project>\w+)", team="{team}/{project}", role="member"),
        "late": PatternSettings(pattern="llm-.*", role="viewer"),
        "global": PatternSettings(pattern="penstock-(.+)", roles={"readers": "viewer", "staff": "operator"}),
    },
)
GIVEN = {
    "llm-search-admin": RoleGrant("team_admin", "acme/search"),
    "llm-a-b-member": RoleGrant("member", "acme/a-b"),
    "llm-ops-admin": RoleGrant("admin"),  # its own row
    "llm-x": RoleGrant("viewer"),  # the first pattern that matches
    "search/index": RoleGrant("member", "search/index"),
    "penstock-staff": RoleGrant("operator"),
    "penstock-admin": None,  # no word of `roles`
    "llm-two words-admin": None,  # no path of a team; no later pattern is asked
    "Llm-search-admin": None,
    "llm-search-admin ": RoleGrant("viewer"),
    "llm-" + "x" * MAX_NAME: None,
    "": None,
}


@pytest.mark.parametrize("group", GIVEN)
def test_a_group_gives_the_role_of_its_row_or_of_the_first_pattern(group: str) -> None:
    (found,) = ROLES.of([group])
    assert found.grant == GIVEN[group]
    assert bool(found.problem) == (group in ("penstock-admin", "llm-two words-admin"))


def test_only_patterns_that_say_so_create_teams() -> None:
    assert ROLES.new_teams(GIVEN) == ["acme/search", "acme/a-b"]


UNBOUNDED = {
    "(a+)+b": "repeated",
    "(a|a)*b": "repeated",
    "((ab)?c){2,}": "repeated",
    "(?:a|b){12}": "repeated",
    ".*.*.*.*x": "too long",
    "a?" * 30: "too long",
    "(a|aa)" * 30: "too long",
    r"(.)\1": "not supported",
    "(?=a)b": "not supported",
    "(?<!a)b": "not supported",
    "(?P=x)": "not supported",
    "(?i)a": "not supported",
    "a**": "nothing to repeat",
    "(a": "no regular expression",
    "a)": "without a",
    "[a": "no regular expression",
    "[z-a]": "no regular expression",
    "a\\": "no end",
    "": "1 to",
    "a{99999999999999}": "no regular expression",
}


@pytest.mark.parametrize("pattern", UNBOUNDED)
def test_a_pattern_that_could_take_too_long_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=UNBOUNDED[pattern]):
        compile_pattern(pattern)


PIECES = st.lists(
    st.sampled_from(
        [".", "a", "[ab]", "-", r"\w", "(a|ab)", "(b)?", "*", "+", "?", "{2,5}", "{3}", "(?<x>a)", "(?:", ")", "|", "("]
    ),
    max_size=14,
)


@pytest.mark.slow
@given(PIECES, st.sampled_from(["a" * 119 + "!", "-a" * 60, "ab" * 60]))
def test_no_accepted_pattern_takes_long(pieces: list[str], name: str) -> None:
    try:
        compile_pattern("".join(pieces))
    except ValueError:
        return
    began = time.process_time()
    matched("".join(pieces), name)
    assert time.process_time() - began < 2.0
