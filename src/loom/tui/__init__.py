"""The terminal UI: a conversation with pictures, folds, branches and approvals, on the `Session` protocol.

Import nothing heavy here: `loom` shows its first screen before the runtime is loaded.
"""
