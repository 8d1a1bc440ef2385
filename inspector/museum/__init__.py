"""The museum: each fault of the gallery as a small session with its story, made from a script of commands."""
