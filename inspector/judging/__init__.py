"""Oracles and judgement: what a state should be, what it is, which kind of difference that is, since when and why.

No screen and no torch: a timeline recomputes (``Timeline.compute``), ``inspector.analysis`` compares.
"""
