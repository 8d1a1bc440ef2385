"""The faults themselves, by class. Importing this package registers them with ``engine.faults``."""

from engine.gallery import (
    accounts,
    bytes_moved,
    counts,
    head,
    in_flight,
    lifecycle,
    mixtures,
    numerics,
    paths,
    prefixes,
    rows,
    streams,
)

__all__ = [
    "accounts",
    "bytes_moved",
    "counts",
    "head",
    "in_flight",
    "lifecycle",
    "mixtures",
    "numerics",
    "paths",
    "prefixes",
    "rows",
    "streams",
]
