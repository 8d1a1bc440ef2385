"""The record: ledger, invariants, session file, time travel. No torch, no Textual."""
