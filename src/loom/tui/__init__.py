"""The terminal UI: a conversation with images, folds, branches and approvals, on the `Session` protocol.

Import nothing heavy here: `loom` shows its first screen before the runtime is loaded.
"""
