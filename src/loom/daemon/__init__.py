"""The daemon: sessions over HTTP, Socket.IO and SSE.

Reading order: `routes` (the table of all routes) → `dispatch` (how a request reaches its handler) → `guard`, `auth` and
`sign_in` (which requests are allowed) → `turns` (how queued messages run) → `feeds` (how events reach clients). `app`
assembles the application, `serve` runs it.
"""
