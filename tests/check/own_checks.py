"""Lays out what checks/families.toml names: the published drafts, as headers.

python -m tests.check.own_checks     write all golden plans of checks/ anew
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests import stage_layout, test_published, test_published_families
from tests.check.places import ROOT, run_checks

CHECKS = ROOT / "checks"
#: what cannot be converted has no plan
REFUSED = {"deepseek_v4.1_flash_dspark"}


def lay_out(root: Path) -> tuple[Path, set[str]]:
    """checks/families.toml in ``root`` with its plans and drafts beside it; the names of these."""
    file = Path(shutil.copy(CHECKS / "families.toml", root))
    shutil.copytree(CHECKS / "plans", root / "plans")
    stages = {path.stem for path in stage_layout.PUBLISHED.glob("*.json")} - REFUSED
    for name in stages:
        stage_layout.lay_out(root / "published" / name, name)
    for name in test_published.NAMES:
        test_published.lay_out(root / "published" / name, name)
    for name in test_published_families.CONVERTED:
        test_published_families.lay_out(root / "published" / name, name)
    return file, stages | {*test_published.NAMES, *test_published_families.CONVERTED}


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        file, _ = lay_out(Path(directory))
        for path in (file, CHECKS / "fixture.toml"):
            print(*run_checks(path, "--write-plans"))
        shutil.copytree(file.parent / "plans", CHECKS / "plans", dirs_exist_ok=True)


if __name__ == "__main__":
    main()
