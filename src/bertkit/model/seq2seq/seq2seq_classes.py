"""The classes of encoder-decoders by name. Imported where one is needed: importing them takes 25 ms."""

from __future__ import annotations

from bertkit.model.seq2seq.conditional_generation import BartForConditionalGeneration, T5ForConditionalGeneration
from bertkit.model.seq2seq.reading_heads import BartForQuestionAnswering, BartForSequenceClassification
from bertkit.model.seq2seq.seq2seq_models import BartModel, Seq2SeqModel, T5EncoderModel, T5Model

#: By the names that ``config.json`` files list under ``architectures``.
SEQ2SEQ_CLASSES: dict[str, type[Seq2SeqModel]] = {
    cls.__name__: cls
    for cls in (
        BartModel,
        BartForConditionalGeneration,
        BartForSequenceClassification,
        BartForQuestionAnswering,
        T5Model,
        T5EncoderModel,
        T5ForConditionalGeneration,
    )
}
