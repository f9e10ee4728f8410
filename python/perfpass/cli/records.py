"""`perfpass records`: public measurements into the record schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from perfpass.cli.options import add_json, new_command, print_json, texts
from perfpass.errors import needs


def add(commands: Any) -> None:
    """The command's options."""
    command = new_command(
        commands,
        "records",
        run,
        "read public measurements into the record schema, and list what was refused and why",
        "example:\n  perfpass records sources --reader argonne -o records",
    )
    sources = "folder that holds the sources' folders (docs/reference/records.md)"
    command.add_argument("sources", metavar="DIR", help=sources)
    command.add_argument("--reader", type=texts, metavar="R,..", help="only these readers (default: all)")
    command.add_argument("-o", "--output", metavar="DIR", help="write every table as DIR/READER-KIND.parquet")
    add_json(command, "text")


def run(options: Any) -> int:
    """Reads the sources, prints a summary of each, and writes the tables where --output says."""
    with needs("records", "`perfpass records`"):
        from perfpass.predictors.learned.artefacts import check_writable
        from perfpass.records import corpus, schema

        found = {}
        if options.output:
            check_writable(Path(options.output) / "tables")
        for name, reading in corpus.read(options.sources, options.reader):
            found[name] = corpus.summary(reading)
            if not options.json:
                print(corpus.text(name, found[name]), flush=True)
            if options.output:
                for kind, table in reading.tables.items():
                    schema.write(Path(options.output) / f"{name}-{kind}.parquet", kind, table)
    if options.json:
        print_json(found)
    return 0
