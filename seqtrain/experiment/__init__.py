"""Course of a training: start, story, resume, endings, and what is reported of it."""
