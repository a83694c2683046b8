"""Changes of a configuration that a running gateway cannot follow: what it took at its start, it keeps to its end."""

from msgspec import structs

from penstock.gateway.config.settings import Config

# By section. The rest is followed from the reload on.
_KEPT: dict[str, tuple[str, ...]] = {
    "server": ("listen", "workers", "log"),
    "ledger": ("enabled", "folder", "postgres", "redis", "journal", "local_share"),
    "admin": ("enabled", "listen", "token"),
}
NEED_RESTART = tuple(f"{section}.{key}" for section, keys in _KEPT.items() for key in keys)


def waiting_for_restart(started: Config, new: Config) -> tuple[str, ...]:
    """The keys in which a configuration differs from the one that a gateway was started with, and will go on to.

    A new token of the admin API is followed; that there is none any more is not. Where nobody says where the admin API
    listens it goes by [server] listen, which is told.
    """
    changed = {
        f"{section}.{key}"
        for section, keys in _KEPT.items()
        for key in keys
        if getattr(getattr(started, section), key) != getattr(getattr(new, section), key)
    }
    if new.admin.token is not None:
        changed.discard("admin.token")
    if started.admin.implied and new.admin.implied:
        changed.discard("admin.listen")
    return tuple(name for name in NEED_RESTART if name in changed)


def as_started(started: Config, new: Config) -> Config:
    """A new configuration as a gateway follows it that was started with another one."""
    kept = {
        section: structs.replace(
            getattr(new, section), **{key: getattr(getattr(started, section), key) for key in keys if key != "token"}
        )
        for section, keys in _KEPT.items()
    }
    return structs.replace(new, **kept)
