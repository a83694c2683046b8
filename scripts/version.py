"""The version of Penstock: the files that have it, and the section of the changelog that a release gets.

`pyproject.toml` is the one place from which code takes it. `scripts/release VERSION` writes it there, and into the
files that cannot read it from there.
"""

import re
from pathlib import Path

PLACES: dict[str, str] = {
    "pyproject.toml": r'^version = "(.+?)"',
    "deploy/helm/penstock/Chart.yaml": r"^(?:version|appVersion): (.+)$",
    "docs/reference/openapi.json": r'^  "version": "(.+)"',
}
"""The files that have the version, and the lines in which they have it."""
SCREEN = 60
"""Lines that a section of the changelog may have: what fits on a screen."""
NOTHING = "Nothing yet."
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


class ReleaseError(Exception):
    """The release cannot be made. The message says what to do."""


def versions(root: Path) -> dict[str, set[str]]:
    """The versions that each file has."""
    return {name: set(re.findall(line, (root / name).read_text(), re.MULTILINE)) for name, line in PLACES.items()}


def sections(changelog: str) -> dict[str, str]:
    """The sections of a changelog, newest first: heading and text."""
    parts = _HEADING.split(changelog)[1:]
    return {heading: text.strip() for heading, text in zip(parts[::2], parts[1::2], strict=True)}


def cut(root: Path, version: str, date: str) -> None:
    """Write a version into its files, and make what is unreleased its section of the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"{version!r} is not a version: it has three numbers, such as 1.4.0")
    (current,) = versions(root)["pyproject.toml"]
    if _numbers(version) <= _numbers(current):
        raise ReleaseError(f"{version} is not newer than {current}, the version in pyproject.toml")
    changelog = root / "CHANGELOG.md"
    text = changelog.read_text()
    changes = sections(text).get("Unreleased", NOTHING)
    if changes in ("", NOTHING):
        raise ReleaseError("CHANGELOG.md has nothing under Unreleased: write what changed for users")
    if (lines := len(changes.splitlines())) > SCREEN:
        raise ReleaseError(f"Unreleased in CHANGELOG.md has {lines} lines, more than a screen ({SCREEN}): shorten it")
    changelog.write_text(text.replace("## Unreleased\n", f"## Unreleased\n\n{NOTHING}\n\n## {version} ({date})\n", 1))
    for name, line in PLACES.items():
        file = root / name
        file.write_text(re.sub(line, lambda found: _with(found, version), file.read_text(), flags=re.MULTILINE))


def _with(found: re.Match[str], version: str) -> str:
    """The line that was found, with this version."""
    start, end = (at - found.start() for at in found.span(1))
    return found[0][:start] + version + found[0][end:]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
