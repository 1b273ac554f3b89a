"""What an installation weighs: a fresh virtual environment with vecmill in it."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]


def measure() -> dict[str, Any]:
    """Megabytes on disk and number of packages, pip and setuptools included."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "venv"
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        python = str(place / "bin/python")
        subprocess.run([python, "-m", "pip", "install", "--quiet", str(PROJECT)], check=True)
        listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], check=True, capture_output=True)
        names = sorted(row["name"] for row in json.loads(listed.stdout))
        size = sum(path.lstat().st_blocks * 512 for path in place.rglob("*"))
    return {"megabytes": round(size / 2**20), "packages": len(names), "names": " ".join(names)}
