"""Content: messages and blocks, as plain values. Read `blocks`, then `messages`; `codec` converts them to JSON."""
