"""`python -m dashboard.report`: write one HTML file, for the command `report`; without Streamlit."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from core.show.report import Price
from core.show.report.signed import section
from core.show.report.subjects import find
from core.store import Store
from core.store.recorded import words_of
from core.wire.files import written_whole
from dashboard.report.page import html_of


def main() -> int:
    """Write the requested file; return 2 if it cannot be written."""
    parser = argparse.ArgumentParser(prog="dashboard.report")
    parser.add_argument("refs", nargs="+")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--price-per-hour", type=float)
    parser.add_argument("--currency", default="USD")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--trust", type=Path)
    given = parser.parse_args()
    price = Price(per_hour=given.price_per_hour, currency=given.currency) if given.price_per_hour else None
    store = Store()
    about = find(store, given.refs)
    signature = section(about, store, file=given.file, trust_file=given.trust)
    text = html_of(about, store, price=price, recorded=words_of(store.folder), signature=signature)
    try:
        with written_whole(given.output) as part:
            part.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"`{given.output}` cannot be written: {error.strerror or error}.")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
