"""Published tables are those of their committed files."""

import subprocess
import sys
from pathlib import Path

FEW_LABELS = Path(__file__).resolve().parent.parent / "results/few-labels"


def test_the_tables_of_few_labels_are_printed_from_its_files() -> None:
    command = [sys.executable, str(FEW_LABELS / "tables.py")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    page = (FEW_LABELS / "README.md").read_text(encoding="utf-8")
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) > 40
    for row in rows:
        assert row in page, row
