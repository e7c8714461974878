"""How a run reads its data and decides: settings that evaluation and prediction need as well. Imports no torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from bertkit.config.sentence_config import checked_prompt
from bertkit.errors import InputError
from bertkit.system.validated_settings import Settings

#: The file of a run folder that says what the model was trained for, and how it read its data.
RUN_SETTINGS = "finetune.json"
LossName = Literal["in-batch", "triplet", "cosine", "cosent"]
RankLoss = Literal["listwise", "pointwise", "lambda"]
#: Tokens of the longest input by task, where 128 (the paper's GLUE setting) would cut most texts.
LONG_TEXT_TASKS = {"imdb": 512, "csv": 256}


class ReadingSettings(Settings):
    """What a kind of task has to know to read its files, encode them, make its model and its decisions on dev."""

    max_length: int | None = Field(
        None,
        ge=3,
        le=1_000_000,
        description="tokens of the longest input; default 128, imdb 512, squad 384, csv 256, rerank 512",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="first seed: data order, new head, dropout")
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: rare labels get more weight in the loss"
    )
    pooling: Literal["cls", "mean", "max"] | None = Field(
        None,
        description="what a text classifier reads from the encoder: pooled [CLS] vector, mean or maximum of all "
        "tokens; default as the checkpoint says (1_Pooling), otherwise cls",
    )
    max_train_rows: int | None = Field(
        None, ge=1, description="use a random sample of this many training rows; recorded in metrics.json"
    )
    on_error: Literal["raise", "skip"] = Field(
        "raise", description="raise: stop at the first bad row; skip: leave it out and report it"
    )
    dev_share: float = Field(
        0.1, gt=0, le=0.5, description="share of the training rows kept for dev when there is no dev split"
    )
    worst: int = Field(50, ge=0, description="worst dev examples that errors-dev.jsonl lists")
    doc_stride: int = Field(128, ge=1, description="squad: tokens from one window of a long context to the next")
    max_query_length: int = Field(64, ge=1, description="squad: tokens of a question; the rest is cut off")
    max_answer_length: int = Field(30, ge=1, description="squad: most tokens of an answer")
    long_texts: Literal["cut", "head_tail", "windows"] = Field(
        "cut",
        description="texts over max_length: cut; keep beginning and end; or read all in windows, whose logits are "
        "averaged",
    )
    overlap: int | None = Field(
        None, ge=0, description="tokens that two neighbouring windows share; default 128 or a quarter"
    )
    calibrate: bool = Field(
        False, description="fit a temperature on dev, so that probabilities are calibrated; saved with the model"
    )
    tune_thresholds: bool = Field(
        False, description="choose on dev the probability from which a label is assigned; saved with the model"
    )
    max_target_length: int | None = Field(
        None, ge=2, le=1_000_000, description="summarize, text2text: tokens of the longest target; default 128"
    )
    num_beams: int | None = Field(
        None,
        ge=1,
        le=1000,
        description="summarize, text2text: beams when dev is answered and ever after; default as the model says",
    )
    rank_loss: RankLoss = Field(
        "listwise",
        description="rerank: listwise: softmax over a query's documents; pointwise: each document by itself, labels "
        "from 0 to 1, so that a score is a probability; lambda: NDCG-Loss2++, for grades",
    )
    label_all_pieces: bool = Field(False, description="ner: the loss covers every piece of a word, not only the first")
    max_tokens: int = Field(
        4096, ge=1, description="tokens in memory at once; larger batches are split, with the same result"
    )
    loss: LossName | None = Field(
        None,
        description="pairs, triplets: in-batch (default: all other texts of a batch are negatives) or triplet; "
        "scored-pairs: cosent (default: the order of the scores) or cosine (their values)",
    )
    temperature: float | None = Field(
        None, gt=0, le=10, description="in-batch, cosent: cosines are divided by it; default 0.05"
    )
    symmetric: bool = Field(False, description="in-batch: positives are matched with anchors, too")
    margin: float | None = Field(
        None, gt=0, le=2, description="triplet: margin between the cosines of positive and negative; default 0.1"
    )
    matryoshka: str | None = Field(
        None,
        pattern=r"^[1-9][0-9]{0,5}(,[1-9][0-9]{0,5})*$",
        description="smaller vector widths that are trained as well, such as 256,128,64",
    )
    mine_negatives: int | None = Field(
        None,
        ge=1,
        le=100,
        description="pairs: hard negatives per row that the model finds among the texts before training",
    )
    max_negative: float | None = Field(
        None,
        gt=0,
        le=1,
        description="with mine_negatives: the largest share of the positive's cosine that a negative may have; "
        "default 0.95",
    )
    query_flops: float | None = Field(None, ge=0, description="sparse-pairs: FLOPS penalty on queries; default 5e-5")
    document_flops: float | None = Field(
        None, ge=0, description="sparse-pairs: FLOPS penalty on documents; default 3e-5"
    )
    query_prompt: str | None = Field(
        None, description="pairs, triplets: prefix of each anchor; saved with the model. Default: the model's"
    )
    document_prompt: str | None = Field(None, description="pairs, triplets: prefix of the other texts; likewise")

    @field_validator("query_prompt", "document_prompt")
    @classmethod
    def _has_no_place(cls, prompt: str | None) -> str | None:
        try:
            return None if prompt is None else checked_prompt(prompt)
        except InputError as error:
            raise ValueError(str(error)) from None
