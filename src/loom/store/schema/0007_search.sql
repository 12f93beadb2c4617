-- What is searched: the words of messages and of media. All of it is derived, and made again where it is missing
-- (see store/search_index.py). `search_state` says how far messages have been indexed, and by which rules.
CREATE TABLE search_state (
    name {name} PRIMARY KEY,
    value BIGINT NOT NULL
){clustered};

-- The text of a medium, in parts that an index can hold.
CREATE TABLE search_medium (
    key {key},
    digest {name} NOT NULL REFERENCES media_text (digest) ON DELETE CASCADE
);
CREATE INDEX search_medium_digest ON search_medium (digest);

{search_tables};
