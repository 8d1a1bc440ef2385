"""Write docs/commands.md from the command registry and docs/museum.md from the rooms: python tools/make_docs.py"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from inspector.commands.groups import build_registry  # noqa: E402
from inspector.commands.manual import manual  # noqa: E402
from inspector.museum.stories import stories  # noqa: E402


def main() -> None:
    for name, text in (("commands.md", manual(build_registry())), ("museum.md", stories())):
        target = ROOT / "docs" / name
        target.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{target.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
