-- System prompts as gateway clients sent them: some change with every request, so each answer names its own.
CREATE TABLE gateway_system (
    digest {name} PRIMARY KEY,
    system TEXT NOT NULL
){clustered};
ALTER TABLE gateway_answer ADD COLUMN system_digest TEXT NOT NULL DEFAULT '';

-- Files that gateway clients uploaded: their bytes are in the media store, by `digest`.
CREATE TABLE gateway_file (
    id {name} PRIMARY KEY,
    client {name} NOT NULL,
    digest {name} NOT NULL,
    name TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    purpose TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
){clustered};
CREATE INDEX gateway_file_created ON gateway_file (client, created_at);
