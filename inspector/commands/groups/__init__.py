"""The groups of commands. A group is a module with ``register(registry)``; to add one, name it in :data:`MODULES`."""

from __future__ import annotations

import importlib

from inspector.commands.registry import Registry

MODULES = [
    "inspector.commands.groups.movement",
    "inspector.commands.groups.actions",
    "inspector.commands.groups.faults",
    "inspector.commands.groups.stopping",
    "inspector.commands.groups.looks",
    "inspector.commands.groups.tensors",
    "inspector.commands.groups.compare",
    "inspector.commands.groups.judging",
    "inspector.commands.groups.oracles",
    "inspector.commands.groups.twins",
    "inspector.commands.groups.session",
]


def build_registry() -> Registry:
    """A registry with the commands of every group."""
    registry = Registry()
    for name in MODULES:
        importlib.import_module(name).register(registry)
    return registry
