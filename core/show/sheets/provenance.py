"""Sheet of a chain of digests. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from core.evidence.verdict import Color
from core.run.digest_chain import DigestChain
from core.show.sheets import Line, Part, Sheet
from core.show.sheets.signatures import signature_fact
from core.show.table import Column, Table
from core.wire.plain_data import plain
from core.wire.units import DASH

WORDS: Mapping[str, str] = {
    "INTACT": "every digest matches",
    "BROKEN": "a digest differs",
    "INCOMPLETE": "no digest differs, but a link is missing",
}
LINK_WORDS: Mapping[str, str] = {"MATCHES": "matches", "DIFFERS": "differs", "MISSING": "not checked"}
MARKS: Mapping[str, str] = {"MATCHES": "✓", "DIFFERS": "✗", "MISSING": "?"}
COLORS: Mapping[str, Color] = {"MATCHES": "green", "DIFFERS": "red", "MISSING": "gray"}


def provenance_sheet(chain: DigestChain) -> Sheet:
    """Return the chain as a row of names, then a table of its digests."""
    row = " → ".join(f"{MARKS[one.state]} {one.name}" for one in chain.links)
    parts: list[Part] = [Line(row), links_table(chain)]
    if chain.signature is not None:
        parts.insert(1, signature_fact(plain(chain.signature)))
    return Sheet(f"{chain.file or f'trial {chain.trial}'} · {WORDS[chain.state]}", parts)


def links_table(chain: DigestChain, *, digits: int = 12) -> Table:
    """Return the digests of the links, shortened to their first digits."""
    rows = [
        (f"{MARKS[one.state]} {one.name}", one.recorded[:digits] or DASH, one.now[:digits] or DASH, one.why)
        for one in chain.links
    ]
    return Table(
        columns=[Column("link", tells=True), Column("recorded"), Column("now"), Column("why")],
        rows=rows,
        colors=[COLORS[one.state] for one in chain.links],
    )
