-- Answers of turns that repeat a stored message word for word: they are no node of their own, but they were paid for.
-- `seq` is the number of the last event of the step that ended with the answer.
CREATE TABLE repeated_answer (
    session_key BIGINT NOT NULL REFERENCES session (key) ON DELETE CASCADE,
    seq BIGINT NOT NULL,
    meta TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (session_key, seq)
){clustered};
CREATE INDEX repeated_answer_created ON repeated_answer (created_at);
