"""How a user is recorded, such as the owner of a key: by its name, and an id that is never given to another user."""


def named_user(name: str, id: str) -> str:
    """How a user is recorded: `ann@acme.com <8f3e>`."""
    return f"{name} <{id}>"


def user_parts(who: str) -> tuple[str, str]:
    """The name and the id of a recorded user. Both are the whole text if it has no id."""
    name, found, rest = who.rpartition(" <")
    return (name, rest[:-1]) if found and rest.endswith(">") else (who, who)
