-- A queued message can be paused: it stays in the queue, and no turn takes it until it is resumed.
ALTER TABLE queued ADD COLUMN paused SMALLINT NOT NULL DEFAULT 0;
