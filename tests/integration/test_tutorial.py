"""The commands of the tutorial, with README's session, run in order; with a smaller model and less time.

Long ids in the text become those of the results of earlier commands.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from core.show.sheets.verifications import PARTS
from core.store import STORE_NAME, Store
from core.wire.files import ROOT
from tests.command_line import CommandLine
from tests.unit.test_docs import Block, blocks, commands_of, lines_of

TIME = {"--budget": "6s", "--effort": "quick"}
MEASURE = (
    "tune",
    "sentence_encoder.onnx",
    "--dim",
    "sequence=128",
    "--intra-op-num-threads",
    "1",
    "--runs",
    "20",
)
UNDECIDED = 3  # what a search or a verification of some seconds may say


def told(path: Path, part: str, *, alone: bool = False) -> list[list[str]]:
    """The command lines of the shell blocks behind the heading `part`; `alone`: up to the next heading."""
    text = path.read_text(encoding="utf-8")
    at = text.index(f"## {part}\n")
    begins, ends = (text[:end].count("\n") for end in (at, text.index("\n## ", at) if alone else None))
    shells = [one for one in blocks(path) if one.language in ("sh", "console")]
    shells = [one for one in shells if begins < line_of(one) <= ends]
    return [call for one in shells for line in lines_of(one) for call in commands_of(line)]


def line_of(block: Block) -> int:
    return int(block.place.rpartition(":")[2])


def shorter(arguments: list[str], winner: str) -> list[str]:
    """The same command in less time, on the results that there are."""
    found = [winner if re.fullmatch("[0-9a-f]{16}", one) else one for one in arguments]
    return [TIME.get(before, one) for before, one in zip(["", *found], found, strict=False)]


def newest(store: Store) -> str:
    """The newest result whose outputs are right."""
    complete = [one for one in store.trials(kind="measure") if one.state == "COMPLETE"]
    return next(one.id for one in complete if not (one.facts.get("guard") or {}).get("breach"))


TUTORIAL = told(ROOT / "docs" / "tutorial.md", "The same in the terminal")


def test_the_session_of_the_readme_is_that_of_the_tutorial() -> None:
    session = told(ROOT / "README.md", "One minute in the terminal", alone=True)
    assert len(session) >= 3
    assert [call for call in session if call not in TUTORIAL] == []


def test_the_commands_of_the_tutorial_do_what_it_says(cli: CommandLine, tmp_path: Path) -> None:
    shutil.copyfile(ROOT / "sample_models" / "tiny_transformer.onnx", tmp_path / "sentence_encoder.onnx")
    cli.run(*MEASURE, cwd=tmp_path)  # the search may find nothing better in its few seconds
    for call in TUTORIAL:
        done = cli.run(*shorter(call, newest(Store(cli.home / STORE_NAME))), cwd=tmp_path)
        # what a search of seconds finds beside other work need not be reproduced; to say so is an answer
        answered = call[0] == "verify" and all(name in done.out for _, name in PARTS)
        assert done.code in (0, UNDECIDED) or answered, (call, done.err)
    assert (tmp_path / "best.zip").is_file()
