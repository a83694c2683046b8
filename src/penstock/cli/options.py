"""Options that several commands have."""

from pathlib import Path

import click

from penstock.gateway.config import DEFAULT_FILE

config_option = click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help=f"The configuration file.  [default: {DEFAULT_FILE}]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
