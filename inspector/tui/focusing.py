"""Where the focus goes from here."""

from __future__ import annotations

from inspector.tui.frame import Frame


def focus_line(frame: Frame, how: str) -> str:
    """The command that moves the focus: request, then layer, then head, from outside to inside. "" when it cannot."""
    start = frame.view.start
    layers = start.recurrent_layers
    if how == "in":
        if frame.layer < 0:
            return f"focus layer {layers[0]}" if layers else ""
        return "focus head 0" if frame.head < 0 else ""
    if how == "out":
        return "focus head" if frame.head >= 0 else "focus layer" if frame.layer >= 0 else "focus request"
    step = 1 if how == "next" else -1
    if frame.head >= 0:
        return f"focus head {(frame.head + step) % max(1, start.h_shape[0] if start.h_shape else 1)}"
    if frame.layer >= 0 and layers:
        at = layers.index(frame.layer) if frame.layer in layers else 0
        return f"focus layer {layers[(at + step) % len(layers)]}"
    requests = sorted(frame.view.requests.keys())
    if not requests:
        return ""
    at = requests.index(frame.req) if frame.req in requests else 0
    return f"focus request {requests[(at + step) % len(requests)]}"
