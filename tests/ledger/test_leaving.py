"""Who leaves loses its keys on every gateway that shares the ledger (scripts/off-board has larger numbers)."""

from tests.faults.conftest import Starter
from tests.ledger.leaving import employ, off_board
from tests.stores.postgres import PostgresServer


def test_keys_of_people_who_leave_are_refused_by_every_gateway(start: Starter, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    gateways = [start(ledger={"postgres": url}) for _ in range(2)]
    people, secrets = employ(url, 40)
    assert off_board(gateways, people, secrets).refused_s < 60
