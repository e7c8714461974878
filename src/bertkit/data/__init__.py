"""Pre-training data: from a corpus of text to packed batches of examples. Data collators have their names here too."""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(
    __name__,
    {
        "bertkit": """
            DataCollatorForLanguageModeling DataCollatorForMultipleChoice DataCollatorForSeq2Seq
            DataCollatorForTokenClassification DataCollatorForWholeWordMask DataCollatorWithPadding
            DefaultDataCollator default_data_collator
        """
    },
)
