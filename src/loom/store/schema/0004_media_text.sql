-- The words inside media, for search: the text of a document, what is written in a picture. Empty where there are none.
CREATE TABLE media_text (
    digest {name} PRIMARY KEY,
    kind {name} NOT NULL,
    text TEXT NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
){clustered};
