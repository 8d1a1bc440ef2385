"""The debuggee: a real hybrid model, its state memory and its scheduler. Emits events; knows no files and no screen."""
