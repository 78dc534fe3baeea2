"""HOST. Documents, passages, questions and tokens."""

import os

# Of transformers only tokenizers are used, so that it misses torch is no news for anybody.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
