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
#: ``from_pretrained``, ``tokenizer``, ``forward`` and ``generate`` (a keyword), ``estimator`` and ``vectorizer`` (a
#: parameter of those for scikit-learn), ``estimator.fit``; ``estimator.``, ``vectorizer.``, ``model.`` (an attribute).
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
estimator | C | sk | otherwise | make_pipeline(BertVectorizer(), LogisticRegression(C=...))
estimator | activation | sk keras | otherwise | model=, which fixes the layers
estimator | alpha | sk | otherwise | bertkit.finetune(..., weight_decay=...)
estimator | base_estimator | sk | otherwise | model=
estimator | bert_model | other | otherwise | model=
estimator | body_learning_rate | setfit | otherwise | learning_rate=
estimator | class_weight | sk | same | that of scikit-learn
estimator | class_weights | other | otherwise | class_weight=
estimator | criterion | sk | otherwise | make_pipeline(BertVectorizer(), RandomForestClassifier(criterion=...))
estimator | early_stopping | sk | otherwise | bertkit.finetune(..., patience=...), which holds rows out
estimator | eval_batch_size | other | otherwise | nothing: predictions are batched by number of tokens
estimator | gamma | sk | otherwise | make_pipeline(BertVectorizer(), SVC(gamma=...))
estimator | gpu | other | otherwise | device="cuda"
estimator | head_params | setfit | otherwise | few_shot="linear"
estimator | hidden_layer_sizes | sk | otherwise | model=, which fixes the layers
estimator | kernel | sk | otherwise | make_pipeline(BertVectorizer(), SVC(kernel=...))
estimator | learning_rate_init | sk | otherwise | learning_rate=
estimator | lr | keras other | otherwise | learning_rate=
estimator | max_depth | sk | otherwise | make_pipeline(BertVectorizer(), RandomForestClassifier(max_depth=...))
estimator | max_epochs | other | otherwise | epochs=
estimator | max_iter | sk | otherwise | epochs=
estimator | max_seq_len | other | otherwise | max_length=
estimator | max_seq_length | tf st | otherwise | max_length=
estimator | model_name | other | otherwise | model=
estimator | model_name_or_path | tf st | otherwise | model=
estimator | n_epochs | other | otherwise | epochs=
estimator | n_estimators | sk | otherwise | make_pipeline(BertVectorizer(), RandomForestClassifier(n_estimators=...))
estimator | n_iter_no_change | sk | otherwise | bertkit.finetune(..., patience=...), which holds rows out
estimator | n_jobs | sk | otherwise | nothing: one fit uses all cores (GridSearchCV(..., n_jobs=1))
estimator | n_neighbors | sk | otherwise | make_pipeline(BertVectorizer(), KNeighborsClassifier(n_neighbors=...))
estimator | num_epochs | st setfit | otherwise | epochs=
estimator | num_train_epochs | tf | otherwise | epochs=
estimator | penalty | sk | otherwise | make_pipeline(BertVectorizer(), LogisticRegression(penalty=...))
estimator | per_device_train_batch_size | tf | otherwise | batch_size=
estimator | pretrained_model_name_or_path | tf | otherwise | model=
estimator | random_state | sk | same | that of scikit-learn; None takes seed=
estimator | solver | sk | otherwise | make_pipeline(BertVectorizer(), LogisticRegression(solver=...))
estimator | tol | sk | otherwise | make_pipeline(BertVectorizer(), LogisticRegression(tol=...))
estimator | use_cuda | other | otherwise | device="cuda"
estimator | validation_fraction | sk other | otherwise | bertkit.finetune(..., dev_share=...)
estimator | verbose | sk keras | same | shows progress; scikit-learn's numbers count as True
estimator | warm_start | sk | otherwise | save_pretrained(FOLDER), then model=FOLDER
estimator | weight_decay | tf st | otherwise | bertkit.finetune(..., weight_decay=...)
estimator. | coef_ | sk | otherwise | model_.classifier.weight
estimator. | embed | other | otherwise | BertVectorizer(model=...).transform(X)
estimator. | encode | st | otherwise | BertVectorizer(model=...).encode(texts)
estimator. | evaluate | keras other | otherwise | score(X, y)
estimator. | finetune | other | otherwise | fit(X, y)
estimator. | fit_transform | sk | otherwise | BertVectorizer(model=...).fit_transform(X)
estimator. | intercept_ | sk | otherwise | model_.classifier.bias
estimator. | n_classes_ | sk | otherwise | len(classes_)
estimator. | partial_fit | sk | otherwise | fit(X, y) on all rows; or save_pretrained(FOLDER), then model=FOLDER
estimator. | predict_classes | keras | otherwise | predict(X)
estimator. | transform | sk | otherwise | BertVectorizer(model=...).transform(X)
estimator.fit | callbacks | keras | otherwise | bertkit.finetune(..., callbacks=...)
estimator.fit | class_weights | other | otherwise | class_weight= of the estimator
estimator.fit | classes | sk | otherwise | nothing: fit finds the labels in y
estimator.fit | eval_set | other | otherwise | bertkit.finetune(...), which scores on a dev set
estimator.fit | groups | sk | otherwise | cross_val_score(..., groups=...)
estimator.fit | validation_data | keras | otherwise | bertkit.finetune(...), which scores on a dev set
estimator.fit | validation_split | keras | otherwise | bertkit.finetune(..., dev_share=...)
estimator.fit | weights | other | otherwise | sample_weight=
import | BertEmbedder | other | otherwise | from bertkit import BertVectorizer
import | BertTokenClassifier | other | otherwise | from bertkit import BertTagger
import | BertTransformer | other | otherwise | from bertkit import BertVectorizer
import | CountVectorizer | sk | otherwise | from bertkit import BertVectorizer
import | TFBertModel | tf | otherwise | from bertkit import BertModel (PyTorch)
import | TfidfVectorizer | sk | otherwise | from bertkit import BertVectorizer
settings | num_train_epochs | tf | otherwise | epochs=
settings | output_dir | tf | otherwise | out=
settings | per_device_train_batch_size | tf | otherwise | batch_size=
vectorizer | analyzer | sk | otherwise | TfidfVectorizer(analyzer=...) beside it in a FeatureUnion
vectorizer | batch_size | st sk | otherwise | nothing: batches are formed by number of tokens
vectorizer | binary | sk | otherwise | TfidfVectorizer(binary=...) beside it in a FeatureUnion
vectorizer | dtype | sk | otherwise | transform(X).astype(...)
vectorizer | embedding_model | st other | otherwise | model=
vectorizer | lowercase | sk | otherwise | TfidfVectorizer(lowercase=...) beside it in a FeatureUnion
vectorizer | max_df | sk | otherwise | TfidfVectorizer(max_df=...) beside it in a FeatureUnion
vectorizer | max_features | sk | otherwise | dimensions=, or make_pipeline(BertVectorizer(), PCA(...))
vectorizer | max_seq_length | st | otherwise | max_length=
vectorizer | min_df | sk | otherwise | TfidfVectorizer(min_df=...) beside it in a FeatureUnion
vectorizer | model_name | st other | otherwise | model=
vectorizer | model_name_or_path | st other | otherwise | model=
vectorizer | n_components | sk | otherwise | dimensions=, or make_pipeline(BertVectorizer(), PCA(...))
vectorizer | n_jobs | sk | otherwise | nothing: all cores are used
vectorizer | ngram_range | sk | otherwise | TfidfVectorizer(ngram_range=...) beside it in a FeatureUnion
vectorizer | norm | sk | otherwise | normalize=True
vectorizer | normalize_embeddings | st | otherwise | normalize=True
vectorizer | pooling_mode | st | otherwise | pooling=
vectorizer | pretrained_model_name_or_path | st other | otherwise | model=
vectorizer | random_state | sk | otherwise | nothing: nothing is drawn at random
vectorizer | show_progress_bar | st | otherwise | verbose=True
vectorizer | stop_words | sk | otherwise | TfidfVectorizer(stop_words=...) beside it in a FeatureUnion
vectorizer | strip_accents | sk | otherwise | TfidfVectorizer(strip_accents=...) beside it in a FeatureUnion
vectorizer | sublinear_tf | sk | otherwise | TfidfVectorizer(sublinear_tf=...) beside it in a FeatureUnion
vectorizer | token_pattern | sk | otherwise | TfidfVectorizer(token_pattern=...) beside it in a FeatureUnion
vectorizer | tokenizer | sk | otherwise | TfidfVectorizer(tokenizer=...) beside it in a FeatureUnion
vectorizer | truncate_dim | st | otherwise | dimensions=
vectorizer | use_idf | sk | otherwise | TfidfVectorizer(use_idf=...) beside it in a FeatureUnion
vectorizer | vocabulary | sk | otherwise | TfidfVectorizer(vocabulary=...) beside it in a FeatureUnion
vectorizer. | build_analyzer | sk | otherwise | AutoTokenizer.from_pretrained(model).tokenize
vectorizer. | embed | other | otherwise | encode(texts)
vectorizer. | embed_documents | other | otherwise | encode(texts)
vectorizer. | embed_query | other | otherwise | encode(text)
vectorizer. | get_feature_names | sk | otherwise | get_feature_names_out()
vectorizer. | idf_ | sk | otherwise | nothing: vectors have no document frequencies
vectorizer. | inverse_transform | sk | otherwise | nothing: texts cannot be read back from vectors
vectorizer. | partial_fit | sk | otherwise | transform(X) of each part: fit learns nothing
vectorizer. | predict | sk | otherwise | make_pipeline(BertVectorizer(), LogisticRegression()).fit(X, y).predict(X)
vectorizer. | vocabulary_ | sk | otherwise | get_feature_names_out(): the numbers of a vector have no words of their own
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
        entry, name, worlds, meaning, ours = (cell.strip() for cell in line.split(" | ", maxsplit=4))
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
