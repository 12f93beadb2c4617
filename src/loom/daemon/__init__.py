"""The daemon: sessions over HTTP, Socket.IO and SSE.

Reading order: `routes` (everything it answers, in one table) → `calls` (how a request reaches its function) → `guard`
and `auth` (who may ask) → `turns` (what runs) → `feeds` (what is heard). `app` puts it together, `serve` runs it.
"""
