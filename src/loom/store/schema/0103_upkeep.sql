-- Which model a file was uploaded for: its address and key are needed to delete the file again.
ALTER TABLE upload ADD COLUMN model TEXT NOT NULL DEFAULT '';

-- Files that providers hold for us and that are to be deleted there. A row goes when its provider has deleted the file,
-- or when the file expires there.
CREATE TABLE unwanted_upload (
    provider {name} NOT NULL,
    account {name} NOT NULL,
    file_id {name} NOT NULL,
    model TEXT NOT NULL,
    expires_at DOUBLE PRECISION NOT NULL,
    tries INTEGER NOT NULL,
    problem TEXT NOT NULL,
    PRIMARY KEY (provider, account, file_id)
){clustered};

-- When upkeep that happens by itself was last begun, by its name.
CREATE TABLE upkeep (
    name {name} PRIMARY KEY,
    at DOUBLE PRECISION NOT NULL
){clustered};
