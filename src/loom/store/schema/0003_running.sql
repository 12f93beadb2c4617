-- Who runs a session now. `fence` grows whenever somebody takes it over; every write of a turn carries the one that it
-- began with, and an old one is refused.
ALTER TABLE session ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN holder TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN held_until DOUBLE PRECISION NOT NULL DEFAULT 0;

-- What waits to be said. A row stays for a while after its message was taken (`node` is where it stands now), so that
-- the same `request_key` never says it twice. `answers_left` counts the answers that are still to be made.
CREATE TABLE queued (
    key {key},
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    id {name} NOT NULL UNIQUE,
    request_key {name} NOT NULL,
    message TEXT NOT NULL,
    options TEXT NOT NULL,
    node {name} NOT NULL,
    answers_left INTEGER NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    UNIQUE (session_key, request_key)
);
CREATE INDEX queued_waiting ON queued (session_key, key) WHERE answers_left > 0;

-- Every digest that a waiting message refers to; once it is taken, node_media has them.
CREATE TABLE queued_media (
    queued_key BIGINT NOT NULL REFERENCES queued (key) ON DELETE CASCADE,
    digest {name} NOT NULL,
    PRIMARY KEY (queued_key, digest)
){clustered};
CREATE INDEX queued_media_digest ON queued_media (digest);

-- What other processes ask of the turn that runs.
CREATE TABLE request (
    key {key},
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    kind TEXT NOT NULL,
    data TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX request_session ON request (session_key);
