"""What was measured where: every result carries this."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from vecmill import __version__
from vecmill.engine.base import usable_cpus

LIBRARIES = ("onnxruntime", "tokenizers", "numpy", "starlette", "uvicorn", "uvloop")


def describe() -> dict[str, str | int | dict[str, str]]:
    """Machine, versions and date."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "cpu": _cpu_model(),
        "cpus": usable_cpus(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "vecmill": __version__,
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def _cpu_model() -> str:
    """Name and the vector extensions that decide the speed."""
    info = Path("/proc/cpuinfo").read_text()
    fields = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    named = {key.strip(): value.strip() for key, value in fields.items()}
    wide = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "amx_int8") if flag in named.get("flags", "").split()]
    return f"{named.get('model name', platform.processor())} ({', '.join(wide)})"
