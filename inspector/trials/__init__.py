"""Trials of the fault gallery: one scenario that reaches every fault, run with a fault and without, and judged."""
