"""The faults themselves, by class. Importing this package registers them with ``engine.faults``."""

from engine.gallery import bytes_moved, counts, lifecycle, numerics, prefixes, streams

__all__ = ["bytes_moved", "counts", "lifecycle", "numerics", "prefixes", "streams"]
