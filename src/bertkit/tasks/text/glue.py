"""The nine tasks of GLUE (Wang et al. 2018), its diagnostic set, which an MNLI model answers, and two of sentiment.

GLUE's files are read as published: tab-separated, nothing quoted, a byte order mark in MRPC, no header in CoLA's train
and dev. Labels have the official order, so that outputs of published checkpoints mean the same here. The main metric is
that of table 1 in Devlin et al. 2019: F1 for MRPC and QQP, Spearman for STS-B, Matthews for CoLA, else accuracy.
The column names of the copies on the Hugging Face Hub are understood as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bertkit.config.file_columns import Columns
from bertkit.tasks.text.task import TextTask

_SENTENCES = Columns(text=("sentence1",), text_pair=("sentence2",), quoting="none")
_ENTAILMENT = ("entailment", "not_entailment")
_glue_task = partial(TextTask, hub_labels=True)
_by_accuracy = partial(_glue_task, metrics=("accuracy",), main_metric="accuracy")

COLA = _glue_task(
    name="cola",
    about="is the sentence acceptable English? (Warstadt et al. 2018)",
    labels=("unacceptable", "acceptable"),
    raw_labels=("0", "1"),
    metrics=("matthews", "accuracy"),
    main_metric="matthews",
    columns=Columns(text=("sentence",), headerless=("source", "label", "star", "sentence"), quoting="none"),
    folders=("CoLA",),
)
SST2 = _by_accuracy(
    name="sst2",
    about="sentiment of phrases from film reviews (Socher et al. 2013)",
    labels=("negative", "positive"),
    raw_labels=("0", "1"),
    columns=Columns(text=("sentence",), quoting="none"),
    folders=("SST-2",),
)
MRPC = _glue_task(
    name="mrpc",
    about="do two sentences from the news say the same? (Dolan and Brockett 2005)",
    labels=("not_equivalent", "equivalent"),
    raw_labels=("0", "1"),
    metrics=("f1", "accuracy"),
    main_metric="f1",
    columns=Columns(
        text=("#1 String", "sentence1"),
        text_pair=("#2 String", "sentence2"),
        label=("Quality", "label"),
        quoting="none",
    ),
    folders=("MRPC",),
)
STSB = _glue_task(
    name="stsb",
    about="how similar are two sentences, from 0 to 5? (Cer et al. 2017)",
    labels=None,
    metrics=("spearman", "pearson"),
    main_metric="spearman",
    columns=Columns(text=("sentence1",), text_pair=("sentence2",), label=("score", "label"), quoting="none"),
    score_range=(0.0, 5.0),
    folders=("STS-B",),
)
QQP = _glue_task(
    name="qqp",
    about="are two questions on Quora duplicates?",
    labels=("not_duplicate", "duplicate"),
    raw_labels=("0", "1"),
    metrics=("f1", "accuracy"),
    main_metric="f1",
    columns=Columns(
        text=("question1",), text_pair=("question2",), label=("is_duplicate", "label"), quoting="none", empty_pair=True
    ),
    folders=("QQP",),
)
RTE = _by_accuracy(
    name="rte",
    about="does the second sentence follow from the first? (RTE 1, 2, 3 and 5)",
    labels=_ENTAILMENT,
    columns=_SENTENCES,
    folders=("RTE",),
)
WNLI = _by_accuracy(
    name="wnli",
    about="Winograd schemas: is the sentence with the pronoun replaced true? (Levesque et al. 2011)",
    labels=("not_entailment", "entailment"),
    raw_labels=("0", "1"),
    columns=_SENTENCES,
    folders=("WNLI",),
)
QNLI = _by_accuracy(
    name="qnli",
    about="does the sentence answer the question? (from SQuAD)",
    labels=_ENTAILMENT,
    columns=Columns(text=("question",), text_pair=("sentence",), quoting="none"),
    folders=("QNLI",),
)
MNLI = _by_accuracy(
    name="mnli",
    about="does the second sentence follow from the first, contradict it, or neither? (Williams et al. 2018)",
    labels=("entailment", "neutral", "contradiction"),
    columns=Columns(
        text=("sentence1", "premise"),
        text_pair=("sentence2", "hypothesis"),
        label=("gold_label", "label"),
        quoting="none",
    ),
    folders=("MNLI", "multinli_1.0"),
    more_dev=("mismatched",),
)
#: Has no labels; :data:`MNLI` models answer it in a submission.
DIAGNOSTIC = _glue_task(
    name="ax",
    about="linguistic phenomena one by one, for a model of MNLI; unlabelled",
    labels=MNLI.labels,
    metrics=("matthews", "accuracy"),
    main_metric="matthews",
    columns=MNLI.columns,
    folders=("AX", "diagnostic"),
)
#: All nine, in the order of the GLUE paper's tables.
WHOLE_GLUE = (COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI)
IMDB = TextTask(
    name="imdb",
    about="sentiment of film reviews (Maas et al. 2011); no dev file: hold rows out of train",
    labels=("negative", "positive"),
    raw_labels=("0", "1"),
    metrics=("accuracy",),
    main_metric="accuracy",
    columns=Columns(text=("text",)),
    folders=("imdb",),
)
TWEETS = TextTask(
    name="tweets",
    about="sentiment of tweets, three labels (the Kaggle data Tweet Sentiment Extraction)",
    labels=("negative", "neutral", "positive"),
    metrics=("accuracy", "macro_f1"),
    main_metric="accuracy",
    columns=Columns(text=("text",), label=("sentiment", "label")),
    folders=("tweet_sentiment", "tweets"),
)
#: The built-in text tasks that have labels and one dev set at most, by name: not ``mnli``, which ``get_task`` has.
TASKS: Mapping[str, TextTask] = {task.name: task for task in (*WHOLE_GLUE, IMDB, TWEETS) if not task.more_dev}
