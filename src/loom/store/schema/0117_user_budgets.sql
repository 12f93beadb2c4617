-- What the sessions of a user may cost in a day, in US dollars; NULL means no limit.
ALTER TABLE account ADD COLUMN day_usd DOUBLE PRECISION;

-- What they have cost, day by day. It stays when a session is deleted: else a spent budget could be emptied that way.
CREATE TABLE account_spending (
    account {name} NOT NULL,
    day TEXT NOT NULL,
    usd DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (account, day)
){clustered};
