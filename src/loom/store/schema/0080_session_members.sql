-- Who may use a session besides administrators. `account` is that of a user, or `*` for every user; `access` is view,
-- edit or own. In a store that has users already, all of them may do with its sessions what they could before.
CREATE TABLE session_member (
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    account {name} NOT NULL,
    access TEXT NOT NULL,
    PRIMARY KEY (session_key, account)
){clustered};
CREATE INDEX session_member_account ON session_member (account);
INSERT INTO session_member (session_key, account, access)
    SELECT key, '*', 'own' FROM session WHERE EXISTS (SELECT 1 FROM account);

-- Which user has put which bytes into the store: they may read them before a message refers to them.
CREATE TABLE account_media (
    account {name} NOT NULL,
    digest {name} NOT NULL,
    PRIMARY KEY (account, digest)
){clustered};
