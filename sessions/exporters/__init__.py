"""Sessions in other programs' formats. Every file appears whole or not at all.

``jsonl``: canonical JSON lines · ``chrome_trace``: for Perfetto and chrome://tracing · ``safetensors_file``: the states
of one instant · ``pytest_file``: a test that reproduces an instant. Each has ``write(...)``.
"""
