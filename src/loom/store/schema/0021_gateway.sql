-- Conversations of gateway clients. `key` names a conversation as its client does; it is continued as this session.
CREATE TABLE gateway_session (
    key {name} PRIMARY KEY,
    session_id {name} NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
){clustered};
CREATE INDEX gateway_session_id ON gateway_session (session_id);

-- Answers that were given to gateway clients: where they are stored, what they cost, and their receipt. `response` is
-- the whole answer where the client may ask for it again.
CREATE TABLE gateway_answer (
    id {name} PRIMARY KEY,
    session_id {name} NOT NULL,
    node_id {name} NOT NULL,
    client {name} NOT NULL,
    model TEXT NOT NULL,
    usd DOUBLE PRECISION,
    receipt TEXT NOT NULL,
    response TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
){clustered};
CREATE INDEX gateway_answer_created ON gateway_answer (created_at);
CREATE INDEX gateway_answer_client ON gateway_answer (client, created_at);
CREATE INDEX gateway_answer_session ON gateway_answer (session_id);

-- The secret by which thinking handles are recognised as ours.
CREATE TABLE gateway_secret (
    name {name} PRIMARY KEY,
    value {name} NOT NULL
){clustered};
