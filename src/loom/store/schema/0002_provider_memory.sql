-- Bytes that a provider holds for us. `account` is a hash of the key and the address; `content` the SHA-256 of what was
-- sent, which a recipe may make differently one day. An id means nothing to another account.
CREATE TABLE upload (
    provider {name} NOT NULL,
    account {name} NOT NULL,
    digest {name} NOT NULL,
    recipe {name} NOT NULL,
    file_id TEXT NOT NULL,
    content TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (provider, account, digest, recipe)
){clustered};
CREATE INDEX upload_digest ON upload (digest);

-- What is known of a model besides the catalogue: asked of its endpoint, or learned from a refusal.
CREATE TABLE learned (
    model {name} NOT NULL,
    base_url {name} NOT NULL,
    origin {name} NOT NULL,
    facts TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (model, base_url, origin)
){clustered};
