"""Keys of the meta table that a program may fill when it makes a session file. Values are text.

``Store(path, "x", meta={MODEL: "...", CONFIG: json.dumps({...})})``
"""

from __future__ import annotations

MODEL = "model"
"""Path of the model, "" for the bundled one."""
CONFIG = "config"
"""JSON object of the ``EngineConfig`` fields the engine was made with: enough to make it again."""
ENVIRONMENT = "environment"
"""What the numbers depend on beside model and settings: processor, library versions. Recordings from another
environment are compared within a tolerance."""
MUSEUM = "museum"
"""Name of the museum room that the session is; such a session is never written by those who open it."""
PROGRAM = "program"
"""Name and version of the writing program."""
