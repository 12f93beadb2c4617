-- {key}, {name} and {clustered} stand for what the two databases spell differently (see store/migrations.py).

-- A message in its place. `id` hashes the parent's id and the exact text of `message`; a root holds the system prompt.
CREATE TABLE node (
    key {key},
    id {name} NOT NULL UNIQUE,
    parent_key BIGINT REFERENCES node (key),
    root_key BIGINT,
    depth INTEGER NOT NULL,
    role TEXT NOT NULL,
    message TEXT NOT NULL,
    source TEXT NOT NULL,
    meta TEXT NOT NULL,
    tags TEXT NOT NULL,
    bookmark TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX node_parent ON node (parent_key);

-- Every digest that a message refers to.
CREATE TABLE node_media (
    node_key BIGINT NOT NULL REFERENCES node (key) ON DELETE CASCADE,
    digest {name} NOT NULL,
    PRIMARY KEY (node_key, digest)
){clustered};
CREATE INDEX node_media_digest ON node_media (digest);

-- Nothing but its row changes when a session goes on: `head_key` has no index and `tip` is left alone (see
-- store/session_rows.py), because every page that a commit touches is written and synced.
CREATE TABLE session (
    key {key},
    id {name} NOT NULL UNIQUE,
    title TEXT NOT NULL,
    head_key BIGINT NOT NULL,
    model TEXT NOT NULL,
    workspace TEXT NOT NULL,
    overrides TEXT NOT NULL,
    watermark TEXT NOT NULL,
    quarantine TEXT NOT NULL,
    settings TEXT NOT NULL,
    archived SMALLINT NOT NULL,
    last_seq BIGINT NOT NULL,
    rev BIGINT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    updated_at DOUBLE PRECISION NOT NULL
);

-- The ends of the branches that a session has left. None is above another, or above the head.
CREATE TABLE tip (
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    node_key BIGINT NOT NULL,
    PRIMARY KEY (session_key, node_key)
){clustered};

CREATE TABLE event (
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    type TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session_key, seq)
){clustered};
