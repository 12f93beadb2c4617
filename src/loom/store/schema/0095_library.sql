-- How people keep their sessions in order. `tags` is a JSON list.
ALTER TABLE session ADD COLUMN folder TEXT NOT NULL DEFAULT '';
ALTER TABLE session ADD COLUMN tags TEXT NOT NULL DEFAULT '[]';
ALTER TABLE session ADD COLUMN pinned SMALLINT NOT NULL DEFAULT 0;

-- Links by which a conversation is read without signing in. The secret is in the link; `node` is where the conversation
-- ended when it was shared: what is said later is not shown. `expires_at` is 0 for a link that stays.
CREATE TABLE share (
    id {name} NOT NULL PRIMARY KEY,
    secret_hash {name} NOT NULL UNIQUE,
    session_id {name} NOT NULL,
    node {name} NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX share_session ON share (session_id);
