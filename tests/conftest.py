"""For every test: one torch thread. Barriers between threads cost more than the small models here compute."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
