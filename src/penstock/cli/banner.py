"""The banner of `penstock serve`: its addresses, its models, and an example command to paste."""

from collections.abc import Mapping

import click
from msgspec import Struct

from penstock.cli.text import one_line
from penstock.gateway.config import Config, Provider
from penstock.upstream.local.model import Settings

_UNSPECIFIED = ("0.0.0.0", "::")
_TRY = """\
    curl -N {url}/chat/completions{key} -d '{{
      "model": "{model}", "stream": true,
      "messages": [{{"role": "user", "content": "What is a river?"}}]
    }}'"""
_MORE = """\
  For other models: set OPENAI_API_KEY, GROQ_API_KEY, …, or write a
  penstock.toml (docs/configuration.md), and start again."""


class PageLink(Struct, frozen=True):
    """The page: the line on the admin API, a one-time link, and the command for another link."""

    admin: str = ""
    link: str = ""
    command: str = "penstock open"


def banner(config: Config, port: int, environment: Mapping[str, str], page: PageLink | None = None) -> str:
    """The text for a terminal once the gateway listens."""
    page = page or PageLink()
    lines = _listening(config, port, page)
    if page.link:
        lines.append(
            f"penstock has a page: {page.link}   (works once, within 15 minutes; for another link: {page.command})"
        )
    lines += _recording(config)
    for provider in config.providers.values():
        if provider.embedded and (config.local_only or not provider.implied):
            lines += _model(config, provider, port, environment)
    if config.local_only:
        lines += ["", _MORE, ""]
    return "\n".join(lines)


def announcement(config: Config, port: int, environment: Mapping[str, str], page: PageLink) -> list[str]:
    """The lines for the log once the gateway listens. Without the link, which would give readers of the log access."""
    lines = _listening(config, port, page)
    if page.link:
        lines.append(f"penstock has a page; for a link to it: {page.command}")
    lines += _recording(config)
    for provider in config.providers.values():
        settings = Settings.of(provider) if provider.embedded else None
        obstacle = settings.obstacle(environment) if settings is not None else None
        if settings is not None and obstacle is not None and (config.local_only or not provider.implied):
            lines.append(f"{settings.name}, the local model, cannot answer: {obstacle}")
    return lines


def _listening(config: Config, port: int, page: PageLink) -> list[str]:
    host = config.server.address.host
    names = ", ".join(sorted(config.providers))
    by = "" if config.local_only else f"   (providers: {names}; configuration: {config.source})"
    lines = [f"penstock listens on {_url(config, host, port)}{by}"]
    if page.admin:
        lines.append(f"penstock listens on {page.admin}")
    return lines


def _recording(config: Config) -> list[str]:
    if not config.server.record:
        return []
    return [f"every call is recorded in {config.server.record}, including prompts and answers"]


def _model(config: Config, provider: Provider, port: int, environment: Mapping[str, str]) -> list[str]:
    settings = Settings.of(provider)
    obstacle = settings.obstacle(environment)
    name = click.style(settings.name, bold=True)
    if obstacle is not None:
        reason = f"  {name}, the local model, cannot answer: {obstacle.reason}."
        return ["", reason, f"  {obstacle.remedy[:1].upper()}{obstacle.remedy[1:]}"]
    if not config.local_only:
        return []  # other providers are configured, so it gets no example
    lines = ["", f"  {name} runs on this machine: no key is needed, and no data leaves it."]
    if settings.weights is not None:
        lines.append(f"  It is {settings.weights.title}, a toy: real streams, answers often wrong.")
    host = config.server.address.host
    url = _url(config, "127.0.0.1" if host in _UNSPECIFIED else host, port)
    return [*lines, "", _TRY.format(url=url, key=_key(config), model=one_line(settings.name))]


def _url(config: Config, host: str, port: int) -> str:
    scheme = "http" if config.server.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/v1"


def _key(config: Config) -> str:
    """The header that a client needs, with the environment variable of its key if there is one."""
    if not config.server.keys:
        return ""
    source = config.server.keys[0].source
    variable = f"${source}" if source.isidentifier() else "YOUR-KEY"
    return f' -H "authorization: Bearer {variable}"'
