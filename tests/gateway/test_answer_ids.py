"""Ids of kept answers: valid only for the client that got them, and not to be forged."""

import base64

import pytest
from msgspec import structs

from penstock.gateway.content.answer_ids import AnswerIds
from penstock.gateway.keys.client_key import ClientKey
from penstock.gateway.keys.key_ring import configured
from penstock.providers.secret import Secret

IDS = AnswerIds(b"s" * 32, "resp_")
CALL = "req_68a1b2c30123456789abcdef"
ID = IDS.make(CALL, "1a2b3c4d", "key_a")
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def test_an_id_is_valid_for_its_owner_only() -> None:
    assert IDS.is_valid(ID, "key_a")
    assert not IDS.is_valid(ID, "key_b")
    assert not IDS.is_valid(ID, "")


def test_an_id_names_call_and_account() -> None:
    assert len(ID) == 61
    payload = base64.urlsafe_b64decode(ID.removeprefix("resp_"))
    assert payload[:12].hex() == CALL.removeprefix("req_")
    assert payload[12:16].hex() == "1a2b3c4d"


def test_ids_differ_by_call_account_and_owner() -> None:
    others = (
        ("req_68a1b2c30123456789abcdee", "1a2b3c4d", "key_a"),
        (CALL, "1a2b3c4e", "key_a"),
        (CALL, "1a2b3c4d", "b"),
    )
    assert len({ID, *(IDS.make(*other) for other in others)}) == 4


def test_no_change_of_an_id_is_valid() -> None:
    start = len("resp_")
    for place in range(start, len(ID)):
        for replacement in ALPHABET.replace(ID[place], ""):
            assert not IDS.is_valid(ID[:place] + replacement + ID[place + 1 :], "key_a")


@pytest.mark.parametrize(
    "forged",
    [
        "",
        "resp_",
        "resp_abc",
        ID[5:],
        f"msg_{ID[5:]}",
        f"{ID}A",
        f"{ID}=",
        f"{ID}\n",
        f" {ID}",
        ID[:-1],
        "resp_" + "é" * 56,
        "resp_" + "A" * 56,
        "resp_" + "!" * 56,
    ],
)
def test_a_forged_id_is_invalid(forged: str) -> None:
    assert not IDS.is_valid(forged, "key_a")


def test_the_parts_of_two_ids_make_no_third_one() -> None:
    other = base64.urlsafe_b64decode(IDS.make(CALL, "1a2b3c4d", "key_b").removeprefix("resp_"))
    own = base64.urlsafe_b64decode(ID.removeprefix("resp_"))
    for cut in range(1, len(own)):
        mixed = "resp_" + base64.urlsafe_b64encode(own[:cut] + other[cut:]).decode()
        if mixed not in (ID, IDS.make(CALL, "1a2b3c4d", "key_b")):
            assert not IDS.is_valid(mixed, "key_a")
            assert not IDS.is_valid(mixed, "key_b")


def test_ids_of_another_gateway_and_of_another_api_are_invalid() -> None:
    assert not AnswerIds(b"t" * 32, "resp_").is_valid(ID, "key_a")
    assert not AnswerIds(b"s" * 32, "conv_").is_valid(f"conv_{ID[5:]}", "key_a")


def test_any_call_id_and_issuer_will_do() -> None:
    assert IDS.is_valid(IDS.make("play-1", "", ""), "")


def test_owners() -> None:
    stored = ClientKey(id="key_1", name="one", digest=b"d")
    assert IDS.owner(None) == ""
    assert IDS.owner(stored) == "key_1"


def test_a_configured_key_is_known_by_its_secret_and_not_by_its_place() -> None:
    first, second = configured([Secret("secret-one"), Secret("secret-two")])
    (moved,) = configured([Secret("secret-two")])
    assert moved.id == first.id, "its name is its place"
    assert IDS.owner(moved) == IDS.owner(second) != IDS.owner(first)


def test_users_with_a_jwt_are_clients_of_their_own() -> None:
    team = ClientKey(id="jwt:acme", name="acme")
    owners = {IDS.owner(structs.replace(team, subject=user)) for user in ("ann", "bob", "")}
    assert len(owners) == 3
    assert not any("ann" in owner for owner in owners)
