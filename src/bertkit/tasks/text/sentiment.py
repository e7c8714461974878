"""Sentiment of film reviews and of tweets."""

from __future__ import annotations

from bertkit.tasks.examples import Columns
from bertkit.tasks.text.task import TextTask

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
