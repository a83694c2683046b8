"""The memory for conversations that are continued."""

import pytest

from penstock.serve.kept.memory import ConversationMemory, ConversationMemoryError, MemoryShare


def test_a_share_is_released_with_its_last_reference() -> None:
    memory = ConversationMemory()
    memory.limit = 100
    share, other = MemoryShare(memory), MemoryShare(memory)
    share.add(60)
    share.add(10)
    other.add(30)
    assert memory.used == 100
    with pytest.raises(ConversationMemoryError):
        other.add(1)
    also = share
    del share
    assert memory.used == 100
    del also
    assert memory.used == 30
    other.add(70)
    del other
    assert memory.used == 0
