-- People who use one daemon. Keys are random and stored as SHA-256; the owner of the data folder is no row here, but the
-- empty id: the daemon's token and password are the owner's.
CREATE TABLE account (
    id {name} NOT NULL PRIMARY KEY,
    name {name} NOT NULL UNIQUE,
    role TEXT NOT NULL,
    key_hash {name} NOT NULL UNIQUE,
    created_at DOUBLE PRECISION NOT NULL
);

-- Browsers that are signed in. The secret is in the browser's cookie; `proof` binds the row to the password that opened
-- it, and is empty where a link or a key did.
CREATE TABLE login (
    id {name} NOT NULL PRIMARY KEY,
    secret_hash {name} NOT NULL UNIQUE,
    account {name} NOT NULL,
    proof TEXT NOT NULL,
    address TEXT NOT NULL,
    agent TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    seen_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX login_account ON login (account);
