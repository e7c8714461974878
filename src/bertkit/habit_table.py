"""What people type out of habit from other libraries, and what it means here: one table for every entry.

A row is what is typed (``entry``: where; ``name``: an import, a keyword, an attribute or an option), the libraries that
have it, and its meaning here: ``same`` (it works with the meaning it has there), ``nothing`` (it is accepted and has no
effect here; the last column says why) or ``otherwise`` (it is refused; the last column is what to write instead).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Literal, NamedTuple, get_args

from bertkit.errors import did_you_mean

Meaning = Literal["same", "nothing", "otherwise"]

#: Rows are sorted by entry and name. Worlds: tf transformers, st sentence-transformers, setfit, sk scikit-learn, keras,
#: other (several tools). Entries: ``import`` (from bertkit), ``command`` (an option of any command, said where the
#: command has ours), ``settings`` (a field of any settings class), ``pipeline`` (a keyword of it or of its calls),
#: ``from_pretrained``, ``tokenizer``, ``forward`` and ``generate`` (a keyword), ``model.`` ... (an attribute).
_TABLE = """
command | --batch | other | otherwise | --batch-size
command | --bs | other | otherwise | --batch-size
command | --gpu | other | otherwise | --device
command | --hard-negatives | st | otherwise | --mine-negatives
command | --label-column | other | otherwise | --label
command | --lr | other | otherwise | --learning-rate
command | --matryoshka-dims | st | otherwise | --matryoshka
command | --max-len | other | otherwise | --max-length
command | --max-seq-length | tf | otherwise | --max-length
command | --model-name-or-path | tf | otherwise | --model
command | --num-epochs | other | otherwise | --epochs
command | --num-train-epochs | tf | otherwise | --epochs
command | --output | other | otherwise | --out
command | --output-dir | tf | otherwise | --out
command | --per-device-train-batch-size | tf | otherwise | --batch-size
command | --scale | st | otherwise | --temperature
command | --text-column | other | otherwise | --text
command | --train-file | tf | otherwise | --data
command | --vocab-size | other | otherwise | --size
import | TFBertModel | tf | otherwise | from bertkit import BertModel (PyTorch)
pipeline | aggregation_strategy | tf | same
pipeline | args_parser | tf | nothing | it had no effect in transformers either
pipeline | batch_size | tf | nothing | batches are formed by the number of tokens, and a text's result does not depend on its batch
pipeline | binary_output | tf | nothing | results are Python objects
pipeline | cache_dir | tf | otherwise | HF_HUB_CACHE=FOLDER in the environment
pipeline | candidate_labels | tf | same
pipeline | clean_up_tokenization_spaces | tf | nothing | words are pieces of the text itself
pipeline | config | tf | otherwise | model=AutoModel...from_pretrained(name, config=config), tokenizer=name
pipeline | convert_to_tensor | st | otherwise | return_tensors=True
pipeline | device_map | tf | same
pipeline | doc_stride | tf | same
pipeline | entity_aggregation | other | otherwise | aggregation_strategy=
pipeline | feature_extractor | tf | nothing | bertkit reads text only
pipeline | framework | tf | nothing | PyTorch, and the compiled engine, are all there is
pipeline | function | other | otherwise | function_to_apply=
pipeline | function_to_apply | tf | same
pipeline | grouped_entities | tf | same
pipeline | handle_impossible_answer | tf | same
pipeline | hypothesis_template | tf | same
pipeline | ignore_labels | tf | same
pipeline | ignore_subwords | tf | same
pipeline | image_processor | tf | nothing | bertkit reads text only
pipeline | k | other | otherwise | top_k=
pipeline | labels | other | otherwise | candidate_labels=
pipeline | local_files_only | tf | otherwise | HF_HUB_OFFLINE=1 in the environment
pipeline | max_answer_len | tf | same
pipeline | max_len | other | otherwise | max_length=
pipeline | max_seq_length | st | otherwise | max_length=
pipeline | model_id | other | otherwise | model=
pipeline | model_kwargs | tf | same
pipeline | model_name | other | otherwise | model=
pipeline | model_name_or_path | other | otherwise | model=
pipeline | modelcard | tf | nothing | it says nothing that a result depends on
pipeline | multi_class | tf | otherwise | multi_label=
pipeline | multi_label | tf | same
pipeline | n_best | other | otherwise | top_k=
pipeline | normalize_embeddings | st | otherwise | normalize=
pipeline | num_workers | tf | nothing | texts are tokenized in the calling process, quickly
pipeline | output_scores | other | otherwise | top_k=None, for the scores of all labels
pipeline | pad_to_multiple_of | tf | nothing | texts are never padded
pipeline | padding | tf | nothing | texts are never padded
pipeline | pooling_mode | st | otherwise | pooling=
pipeline | processor | tf | nothing | bertkit reads text only
pipeline | prompt_template | other | otherwise | pattern=
pipeline | return_all_scores | tf | same
pipeline | return_attention_mask | tf | nothing | the model gets what it reads
pipeline | return_tensors | tf | same
pipeline | return_token_type_ids | tf | nothing | the model gets what it reads
pipeline | show_progress_bar | st | otherwise | progress=
pipeline | strategy | other | otherwise | aggregation_strategy=
pipeline | targets | tf | same
pipeline | threshold | other | otherwise | top_k='chosen', for the thresholds chosen on dev
pipeline | token | tf | nothing | the Hub's token is that of 'hf auth login' or HF_TOKEN in the environment
pipeline | tokenize_kwargs | tf | same
pipeline | tokenizer_kwargs | tf | same
pipeline | top_k | tf | same
pipeline | topk | tf | otherwise | top_k=
pipeline | torch_dtype | tf | same
pipeline | truncate_dim | st | otherwise | dimensions=
pipeline | trust_remote_code | tf | nothing | code from a checkpoint is never run
pipeline | use_auth_token | tf | nothing | the Hub's token is that of 'hf auth login' or HF_TOKEN in the environment
pipeline | use_fast | tf | nothing | every tokenizer is a fast one
pipeline. | batch_size | tf | otherwise | pipe(texts); batches are formed by the number of tokens
pipeline. | dtype | tf | otherwise | pipe.model.dtype
pipeline. | encode | st | otherwise | pipe(texts, pooling='model'), or from bertkit import SentenceEncoder
pipeline. | feature_extractor | tf | otherwise | pipe.tokenizer; bertkit reads text only
pipeline. | fit | sk | otherwise | from bertkit import BertClassifier (fit, predict), or finetune
pipeline. | forward | tf | otherwise | pipe.model(**inputs)
pipeline. | generation_config | tf | otherwise | pipe.settings of a pipeline that writes text
pipeline. | id2label | other | otherwise | pipe.model.config.id2label
pipeline. | image_processor | tf | otherwise | pipe.tokenizer; bertkit reads text only
pipeline. | labels | other | otherwise | pipe.model.config.id2label
pipeline. | postprocess | tf | otherwise | pipe(texts), or pipe.model(**inputs) for the logits
pipeline. | predict | tf | otherwise | pipe(texts)
pipeline. | preprocess | tf | otherwise | pipe.tokenizer(texts, return_tensors='pt')
pipeline. | push_to_hub | tf | otherwise | pipe.model.push_to_hub(name)
pipeline. | torch_dtype | tf | otherwise | pipe.model.dtype
pipeline. | transform | tf | otherwise | pipe(texts)
settings | num_train_epochs | tf | otherwise | epochs=
settings | output_dir | tf | otherwise | out=
settings | per_device_train_batch_size | tf | otherwise | batch_size=
task | any-to-any | tf | otherwise | transformers.pipeline('any-to-any'); bertkit reads text
task | audio-classification | tf | otherwise | transformers.pipeline('audio-classification'); bertkit reads text
task | automatic-speech-recognition | tf | otherwise | transformers.pipeline('automatic-speech-recognition'); bertkit reads text
task | classification | other | otherwise | 'text-classification'
task | conversational | tf | otherwise | 'text2text-generation' with a BART or T5; for chat transformers.pipeline('text-generation')
task | depth-estimation | tf | otherwise | transformers.pipeline('depth-estimation'); bertkit reads text
task | document-question-answering | tf | otherwise | 'question-answering' with the text of the document; bertkit reads text
task | embedding | other | otherwise | 'feature-extraction', pooling='model'
task | embeddings | other | otherwise | 'feature-extraction', pooling='model'
task | fill_mask | other | otherwise | 'fill-mask'
task | image-classification | tf | otherwise | transformers.pipeline('image-classification'); bertkit reads text
task | image-feature-extraction | tf | otherwise | transformers.pipeline('image-feature-extraction'); bertkit reads text
task | image-segmentation | tf | otherwise | transformers.pipeline('image-segmentation'); bertkit reads text
task | image-text-to-text | tf | otherwise | transformers.pipeline('image-text-to-text'); bertkit reads text
task | image-to-image | tf | otherwise | the library diffusers; bertkit reads text
task | image-to-text | tf | otherwise | transformers.pipeline('image-text-to-text'); bertkit reads text
task | keypoint-matching | tf | otherwise | transformers.pipeline('keypoint-matching'); bertkit reads text
task | mask-filling | other | otherwise | 'fill-mask'
task | mask-generation | tf | otherwise | transformers.pipeline('mask-generation'); bertkit reads text
task | named-entity-recognition | other | otherwise | 'ner'
task | natural-language-inference | other | otherwise | 'text-classification'
task | nli | other | otherwise | 'text-classification', or 'zero-shot-classification' with labels of your own
task | object-detection | tf | otherwise | transformers.pipeline('object-detection'); bertkit reads text
task | pos | other | otherwise | 'token-classification'
task | qa | other | otherwise | 'question-answering'
task | rerank | other | otherwise | 'text-ranking'
task | reranking | other | otherwise | 'text-ranking'
task | sentence-classification | other | otherwise | 'text-classification'
task | sentence-embedding | other | otherwise | 'feature-extraction', pooling='model'
task | sentence-embeddings | other | otherwise | 'feature-extraction', pooling='model'
task | sentiment | other | otherwise | 'sentiment-analysis'
task | sequence-classification | other | otherwise | 'text-classification'
task | table-question-answering | tf | otherwise | transformers.pipeline('table-question-answering'); bertkit reads texts, no tables
task | text-generation | tf | otherwise | 'text2text-generation' with a BART or T5; for a GPT transformers.pipeline('text-generation')
task | text-to-audio | tf | otherwise | transformers.pipeline('text-to-audio'); bertkit writes text
task | text-to-speech | tf | otherwise | transformers.pipeline('text-to-audio'); bertkit writes text
task | text-to-text | other | otherwise | 'text2text-generation'
task | video-classification | tf | otherwise | transformers.pipeline('video-classification'); bertkit reads text
task | visual-question-answering | tf | otherwise | transformers.pipeline('image-text-to-text'); bertkit reads text
task | vqa | tf | otherwise | transformers.pipeline('image-text-to-text'); bertkit reads text
task | zero-shot | other | otherwise | 'zero-shot-classification'
task | zero-shot-audio-classification | tf | otherwise | transformers.pipeline('zero-shot-audio-classification'); bertkit reads text
task | zero-shot-image-classification | tf | otherwise | transformers.pipeline('zero-shot-image-classification'); bertkit reads text
task | zero-shot-object-detection | tf | otherwise | transformers.pipeline('zero-shot-object-detection'); bertkit reads text
"""


class Habit(NamedTuple):
    """One row of the table."""

    entry: str
    name: str
    worlds: tuple[str, ...]
    meaning: Meaning
    ours: str


@cache
def habits() -> dict[tuple[str, str], Habit]:
    """All rows by entry and name."""
    found: dict[tuple[str, str], Habit] = {}
    for line in _TABLE.strip().splitlines():
        entry, name, worlds, meaning, ours = (*(cell.strip() for cell in line.split(" | ", maxsplit=4)), "")[:5]
        assert meaning in get_args(Meaning), line
        assert (entry, name) not in found, line
        found[entry, name] = Habit(entry, name, tuple(worlds.split()), meaning, ours)  # type: ignore[arg-type]
    return found


def remedy(entry: str, name: str, known: Iterable[str]) -> str:
    """What to write instead of ``name``: what the table says, else the nearest of ``known`` by spelling, else nothing.

    The result follows the name in a message: ``; write batch_size=`` or `` (did you mean 'x'?)``.
    """
    habit = habits().get((entry, name))
    if habit is not None and habit.meaning == "otherwise":
        return f"; write {habit.ours}"
    return did_you_mean(name, known)


@cache
def without_meaning(entry: str) -> frozenset[str]:
    """Names that an entry accepts and ignores."""
    return frozenset(habit.name for habit in habits().values() if (habit.entry, habit.meaning) == (entry, "nothing"))
