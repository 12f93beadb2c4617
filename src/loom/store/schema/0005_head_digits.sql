-- The first digits of the head's id. `head_key` alone could, damaged, point at another conversation, and nobody would know.
ALTER TABLE session ADD COLUMN head_digits TEXT NOT NULL DEFAULT '';
