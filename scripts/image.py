"""Builds the container image; see `scripts/image`."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "deploy" / "images.toml"


class NotPinned(Exception):
    """A base image has no digest. The message says where to get it."""


def main(arguments: list[str]) -> int:
    options = {option: option in arguments for option in ("--unpinned", "--print")}
    others = [argument for argument in arguments if argument not in options]
    try:
        images = base_images(PINS.read_text(), pinned=not options["--unpinned"])
    except NotPinned as error:
        print(f"penstock: {error}", file=sys.stderr)
        return 1
    build = [part for name, image in images.items() for part in ("--build-arg", f"{name}={image}")]
    if options["--print"]:
        print(" ".join(build))
        return 0
    return subprocess.run(["docker", "build", *build, *others, str(ROOT)], check=False).returncode


def base_images(pins: str, *, pinned: bool) -> dict[str, str]:
    """The build arguments of the Dockerfile, and the images that they name."""
    images = {}
    for argument, image in tomllib.loads(pins).items():
        name, digest = image["name"], image["digest"]
        if pinned and not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise NotPinned(
                f"deploy/images.toml has no digest for {name}. Look it up where you trust the registry, with\n"
                f"    docker buildx imagetools inspect {name} --format '{{{{.Manifest.Digest}}}}'\n"
                f'and write it there, as digest = "sha256:…" of [{argument}]. For a trial: scripts/image --unpinned'
            )
        images[argument] = f"{name}@{digest}" if pinned else name
    return images


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
