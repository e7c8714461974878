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
BinaryClassificationEvaluator | batch_size | st | nothing | batches are formed by numbers of tokens
BinaryClassificationEvaluator | show_progress_bar | st | nothing | batches are formed by numbers of tokens
BinaryCrossEntropyLoss | activation_fn | st | otherwise | BinaryCrossEntropyLoss(model)
BinaryCrossEntropyLoss | pos_weight | st | otherwise | BinaryCrossEntropyLoss(model)
CrossEncoder | automodel_args | st | nothing | what a model computes is said by its folder
CrossEncoder | backend | st | otherwise | bertkit export MODEL --out FOLDER, and CrossEncoder(FOLDER)
CrossEncoder | cache_folder | st | nothing | models are kept in the cache of the Hub, HF_HOME
CrossEncoder | config_kwargs | st | nothing | what a model computes is said by its folder
CrossEncoder | local_files_only | st | nothing | HF_HUB_OFFLINE=1 forbids connections
CrossEncoder | model_kwargs | st | nothing | what a model computes is said by its folder
CrossEncoder | push_to_hub | st | otherwise | save_pretrained("FOLDER"), then: hf upload NAME FOLDER
CrossEncoder | token | st | otherwise | HF_TOKEN=... in the environment
CrossEncoder | tokenizer_args | st | nothing | the tokenizer is that of the folder
CrossEncoder | tokenizer_kwargs | st | nothing | the tokenizer is that of the folder
CrossEncoder | trust_remote_code | st | nothing | no code of a checkpoint is ever run
EmbeddingSimilarityEvaluator | batch_size | st | nothing | batches are formed by numbers of tokens
EmbeddingSimilarityEvaluator | show_progress_bar | st | nothing | batches are formed by numbers of tokens
InformationRetrievalEvaluator | batch_size | st | nothing | batches are formed by numbers of tokens
InformationRetrievalEvaluator | corpus_chunk_size | st | nothing | scores are computed in blocks, by the model's own similarity
InformationRetrievalEvaluator | main_score_function | st | nothing | scores are computed in blocks, by the model's own similarity
InformationRetrievalEvaluator | score_functions | st | otherwise | similarity_fn_names=["cosine", "dot"]
InformationRetrievalEvaluator | show_progress_bar | st | nothing | batches are formed by numbers of tokens
InformationRetrievalEvaluator | write_predictions | st | nothing | scores are computed in blocks, by the model's own similarity
LambdaLoss | k | st | nothing | it is NDCG-Loss2++ over all documents of a query
LambdaLoss | mini_batch_size | st | nothing | it is NDCG-Loss2++ over all documents of a query
LambdaLoss | mu | st | nothing | it is NDCG-Loss2++ over all documents of a query
LambdaLoss | reduction_log | st | nothing | it is NDCG-Loss2++ over all documents of a query
LambdaLoss | weighting_scheme | st | nothing | it is NDCG-Loss2++ over all documents of a query
ListNetLoss | mini_batch_size | st | nothing | every batch is read in parts that fit the memory
MultipleNegativesRankingLoss | gather_across_devices | st | nothing | every batch is read in parts that fit the memory
MultipleNegativesRankingLoss | mini_batch_size | st | nothing | every batch is read in parts that fit the memory
MultipleNegativesRankingLoss | show_progress_bar | st | nothing | every batch is read in parts that fit the memory
SentenceTransformer | add_adapter | st | otherwise | bertkit.finetune("pairs", ..., config=FinetuneConfig(lora=8))
SentenceTransformer | cache_folder | st | nothing | models are kept in the cache of the Hub, HF_HOME
SentenceTransformer | compile | st | otherwise | nothing: the encoder is a compiled library already
SentenceTransformer | config_kwargs | st | nothing | what a model computes is said by its folder
SentenceTransformer | dtype | st | otherwise | encoder.pipeline.model.dtype
SentenceTransformer | get_backend | st | otherwise | nothing: it computes by the compiled encoder, or by ONNX Runtime in an exported folder
SentenceTransformer | local_files_only | st | nothing | a model in the cache is not looked up again; HF_HUB_OFFLINE=1 forbids connections
SentenceTransformer | model_card_data | st | nothing | a model card is written by bertkit.finetune
SentenceTransformer | named_parameters | st | otherwise | encoder.pipeline.model.named_parameters()
SentenceTransformer | old_fit | st | otherwise | fit(train_objectives=...)
SentenceTransformer | processor | st | otherwise | tokenizer
SentenceTransformer | push_to_hub | st | otherwise | save_pretrained("FOLDER"), then: hf upload NAME FOLDER
SentenceTransformer | save_to_hub | st | otherwise | save_pretrained("FOLDER"), then: hf upload NAME FOLDER
SentenceTransformer | smart_batching_collate | st | otherwise | the DataLoader itself: fit makes its own batches
SentenceTransformer | state_dict | st | otherwise | encoder.pipeline.model.state_dict()
SentenceTransformer | token | st | otherwise | HF_TOKEN=... in the environment
SentenceTransformer | transformers_model | st | otherwise | encoder.pipeline.model
SentenceTransformer | trust_remote_code | st | nothing | no code of a checkpoint is ever run
SentenceTransformer | use_auth_token | st | otherwise | HF_TOKEN=... in the environment
SentenceTransformerTrainer | compute_metrics | st | otherwise | evaluator=
SentenceTransformerTrainer | data_collator | st | nothing | batches are made by the loss
SentenceTransformerTrainer | model_init | st | otherwise | model=
SentenceTransformerTrainer | optimizers | st | otherwise | args= with learning_rate, warmup_ratio and weight_decay
SentenceTransformerTrainer | processing_class | st | nothing | the model has its own
SentenceTransformerTrainer | tokenizer | st | nothing | the model has its own
SentenceTransformerTrainer.train | resume_from_checkpoint | st | otherwise | bertkit.finetune("pairs", ..., resume=True), which keeps the state of a training
SentenceTransformerTrainingArguments | auto_find_batch_size | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | batch_sampler | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | batch_size | st | otherwise | per_device_train_batch_size=
SentenceTransformerTrainingArguments | data_seed | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | dataloader_drop_last | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | dataloader_num_workers | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | dataloader_pin_memory | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | disable_tqdm | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | do_eval | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | do_train | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | epochs | st | otherwise | num_train_epochs=
SentenceTransformerTrainingArguments | eval_on_start | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | eval_steps | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | full_determinism | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | gradient_checkpointing | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | greater_is_better | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | hub_model_id | st | otherwise | model.save_pretrained("FOLDER"), then: hf upload NAME FOLDER
SentenceTransformerTrainingArguments | learning_rate_mapping | st | otherwise | bertkit.FinetuneConfig(layer_decay=...)
SentenceTransformerTrainingArguments | log_level | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | logging_dir | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | logging_first_step | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | logging_steps | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | logging_strategy | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | multi_dataset_batch_sampler | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | optim | st | otherwise | nothing: it is AdamW
SentenceTransformerTrainingArguments | overwrite_output_dir | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | per_device_eval_batch_size | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | push_to_hub | st | otherwise | model.save_pretrained("FOLDER"), then: hf upload NAME FOLDER
SentenceTransformerTrainingArguments | remove_unused_columns | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | report_to | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | run_name | st | nothing | progress is shown on standard error; a bertkit.Callback follows every step
SentenceTransformerTrainingArguments | save_steps | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | save_total_limit | st | nothing | evaluation is after each epoch; the trained model is saved once; a seed gives the same model
SentenceTransformerTrainingArguments | tf32 | st | nothing | batches are formed so that they fit the memory and have no text twice
SentenceTransformerTrainingArguments | torch_compile | st | nothing | batches are formed so that they fit the memory and have no text twice
SparseEncoder | cache_folder | st | nothing | models are kept in the cache of the Hub, HF_HOME
SparseEncoder | local_files_only | st | nothing | HF_HUB_OFFLINE=1 forbids connections
SparseEncoder | model_kwargs | st | nothing | what a model computes is said by its folder
SparseEncoder | token | st | otherwise | HF_TOKEN=... in the environment
SparseEncoder | tokenizer_kwargs | st | nothing | the tokenizer is that of the folder
SparseEncoder | truncate_dim | st | otherwise | max_active_dims=
SparseEncoder | trust_remote_code | st | nothing | no code of a checkpoint is ever run
TripletEvaluator | batch_size | st | nothing | batches are formed by numbers of tokens
TripletEvaluator | show_progress_bar | st | nothing | batches are formed by numbers of tokens
command | --batch | other | otherwise | --batch-size
command | --bs | other | otherwise | --batch-size
command | --csv | other | otherwise | --out X.csv
command | --decimal | other | otherwise | --excel
command | --format | other | otherwise | --out X.xlsx (the ending is the format)
command | --gpu | other | otherwise | --device
command | --hard-negatives | st | otherwise | --mine-negatives
command | --label-column | other | otherwise | --label
command | --lr | other | otherwise | --learning-rate
command | --matryoshka-dims | st | otherwise | --matryoshka
command | --max-len | other | otherwise | --max-length
command | --max-seq-length | tf | otherwise | --max-length
command | --min-similarity | other | otherwise | --threshold
command | --model-name-or-path | tf | otherwise | --model
command | --num-epochs | other | otherwise | --epochs
command | --num-train-epochs | tf | otherwise | --epochs
command | --output | other | otherwise | --out
command | --output-dir | tf | otherwise | --out
command | --output-file | other | otherwise | --out
command | --output-format | other | otherwise | --out X.xlsx (the ending is the format)
command | --per-device-train-batch-size | tf | otherwise | --batch-size
command | --save | other | otherwise | --out
command | --scale | st | otherwise | --temperature
command | --similarity-threshold | other | otherwise | --threshold
command | --text-column | other | otherwise | --text
command | --train-file | tf | otherwise | --data
command | --vocab-size | other | otherwise | --size
cross_encoder.evaluation | CEBinaryAccuracyEvaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
cross_encoder.evaluation | CEBinaryClassificationEvaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
cross_encoder.evaluation | CECorrelationEvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
cross_encoder.evaluation | CEF1Evaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
cross_encoder.evaluation | CERerankingEvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
cross_encoder.evaluation | CESoftmaxAccuracyEvaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
cross_encoder.evaluation | CrossEncoderClassificationEvaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
cross_encoder.evaluation | CrossEncoderCorrelationEvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
cross_encoder.evaluation | CrossEncoderNanoBEIREvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
cross_encoder.evaluation | CrossEncoderRerankingEvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
cross_encoder.losses | ADRMSELoss | st | otherwise | ListNetLoss(model) or LambdaLoss(model)
cross_encoder.losses | BinaryCrossEntropyLoss | st | same | as there
cross_encoder.losses | CachedMultipleNegativesRankingLoss | st | otherwise | bertkit.finetune("rerank", data="pairs.jsonl", model="MODEL", out="RUN"), with rows of a query, a positive and negatives
cross_encoder.losses | CrossEntropyLoss | st | otherwise | bertkit.finetune("csv", data="pairs.csv", text="sentence1", text_pair="sentence2", label="label", model="MODEL", out="RUN")
cross_encoder.losses | LambdaLoss | st | same | as there
cross_encoder.losses | ListMLELoss | st | otherwise | ListNetLoss(model) or LambdaLoss(model)
cross_encoder.losses | ListNetLoss | st | same | as there
cross_encoder.losses | MSELoss | st | otherwise | BinaryCrossEntropyLoss(model) with the teacher's scores as labels from 0 to 1
cross_encoder.losses | MarginMSELoss | st | otherwise | BinaryCrossEntropyLoss(model) with the teacher's scores as labels from 0 to 1
cross_encoder.losses | MultipleNegativesRankingLoss | st | otherwise | bertkit.finetune("rerank", data="pairs.jsonl", model="MODEL", out="RUN"), with rows of a query, a positive and negatives
cross_encoder.losses | PListMLELoss | st | otherwise | ListNetLoss(model) or LambdaLoss(model)
cross_encoder.losses | RankNetLoss | st | otherwise | ListNetLoss(model) or LambdaLoss(model)
datasets | DenoisingAutoEncoderDataset | st | otherwise | InputExample(texts=[text, text]) with losses.MultipleNegativesRankingLoss(model) (SimCSE)
datasets | NoDuplicatesDataLoader | st | otherwise | torch.utils.data.DataLoader(examples, batch_size=32); no batch has a text twice
datasets | ParallelSentencesDataset | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
datasets | SentenceLabelDataset | st | otherwise | a list of InputExamples of three texts, with losses.TripletLoss(model)
datasets | SentencesDataset | st | otherwise | the list of InputExamples itself, in a torch.utils.data.DataLoader
encode | batch_size | st | nothing | batches are formed by numbers of tokens; one process uses all cores
encode | chunk_size | st | nothing | batches are formed by numbers of tokens; one process uses all cores
encode | dimensions | st | otherwise | truncate_dim=
encode | is_pretokenized | st | otherwise | " ".join(words)
encode | normalize | st | otherwise | normalize_embeddings=
encode | pool | st | nothing | batches are formed by numbers of tokens; one process uses all cores
encode | save_to_cpu | st | nothing | vectors are on the device of the model
evaluation | BinaryClassificationEvaluator | st | same | as there
evaluation | EmbeddingSimilarityEvaluator | st | same | as there
evaluation | InformationRetrievalEvaluator | st | same | as there
evaluation | LabelAccuracyEvaluator | st | otherwise | bertkit evaluate csv --data FILE --model RUN
evaluation | MSEEvaluator | st | otherwise | bertkit distill vectors, which reports how near a student is to its teacher
evaluation | MSEEvaluatorFromDataFrame | st | otherwise | bertkit distill vectors, which reports how near a student is to its teacher
evaluation | NanoBEIREvaluator | st | otherwise | InformationRetrievalEvaluator with the texts of a data set
evaluation | ParaphraseMiningEvaluator | st | otherwise | BinaryClassificationEvaluator with the pairs and their labels
evaluation | RerankingEvaluator | st | otherwise | bertkit evaluate rerank --data FILE --model MODEL
evaluation | SentenceEvaluator | st | same | as there
evaluation | SequentialEvaluator | st | same | as there
evaluation | TranslationEvaluator | st | otherwise | InformationRetrievalEvaluator with the translations as relevant_docs
evaluation | TripletEvaluator | st | same | as there
fit | activation_fct | st | nothing | batches and scores are those of the loss
fit | checkpoint_path | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | checkpoint_save_steps | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | checkpoint_save_total_limit | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | collate_fn | st | nothing | batches and scores are those of the loss
fit | evaluation_steps | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | loss_fct | st | otherwise | CrossEncoderTrainer(model, args, rows, loss=...)
fit | optimizer_class | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | save_best_model | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | show_progress_bar | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
fit | use_amp | st | nothing | evaluation is after each epoch, the last epoch is kept, the optimizer is AdamW
import | CrossEncoder | st | same | as there
import | CrossEncoderTrainer | st | same | as there
import | CrossEncoderTrainingArguments | st | same | as there
import | InputExample | st | same | as there
import | LoggingHandler | st | otherwise | logging.basicConfig(); bertkit itself writes to standard error
import | MultiVectorEncoder | st | otherwise | SentenceTransformer, with CrossEncoder to rank what it finds (there is no model of several vectors a text)
import | MultiVectorEncoderTrainer | st | otherwise | SentenceTransformerTrainer (there is no model of several vectors a text)
import | ParallelSentencesDataset | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
import | SentenceTransformer | st | same | as there
import | SentenceTransformerModelCardData | st | otherwise | nothing: the model card is written by bertkit.finetune
import | SentenceTransformerTrainer | st | same | as there
import | SentenceTransformerTrainingArguments | st | same | as there
import | SentencesDataset | st | otherwise | the list of InputExamples itself, in a torch.utils.data.DataLoader
import | SimilarityFunction | st | same | as there
import | SparseEncoder | st | same | as there
import | SparseEncoderTrainer | st | same | as there
import | SparseEncoderTrainingArguments | st | same | as there
command | --xlsx | other | otherwise | --out X.xlsx
import | TFBertModel | tf | otherwise | from bertkit import BertModel (PyTorch)
import | evaluation | st | same | as there
import | export_dynamic_quantized_onnx_model | st | otherwise | bertkit quantize MODEL --calibrate texts.txt --out FOLDER
import | export_optimized_onnx_model | st | otherwise | bertkit export MODEL --out FOLDER
import | export_static_quantized_openvino_model | st | otherwise | bertkit quantize MODEL --calibrate texts.txt --out FOLDER
import | losses | st | same | as there
import | mine_hard_negatives | st | otherwise | bertkit.finetune("pairs", data="pairs.jsonl", model="MODEL", out="RUN", config=FinetuneConfig(mine_negatives=5))
import | models | st | same | as there
import | quantize_embeddings | st | otherwise | from bertkit.sentence_transformers import quantize_embeddings
import | readers | st | same | as there
import | util | st | same | as there
losses | AdaptiveLayerLoss | st | otherwise | losses.MatryoshkaLoss(model, loss, matryoshka_dims=[...]), and bertkit shrink MODEL --keep-layers 3 --out FOLDER for fewer layers
losses | AnglELoss | st | same | as there
losses | BatchAllTripletLoss | st | otherwise | losses.TripletLoss(model) with triplets made of the labels, or bertkit finetune csv --data FILE --model MODEL --out RUN --few-shot, which compares texts by their labels
losses | BatchHardSoftMarginTripletLoss | st | otherwise | losses.TripletLoss(model) with triplets made of the labels, or bertkit finetune csv --data FILE --model MODEL --out RUN --few-shot, which compares texts by their labels
losses | BatchHardTripletLoss | st | otherwise | losses.TripletLoss(model) with triplets made of the labels, or bertkit finetune csv --data FILE --model MODEL --out RUN --few-shot, which compares texts by their labels
losses | BatchHardTripletLossDistanceFunction | st | otherwise | losses.TripletLoss(model) with triplets made of the labels, or bertkit finetune csv --data FILE --model MODEL --out RUN --few-shot, which compares texts by their labels
losses | BatchSemiHardTripletLoss | st | otherwise | losses.TripletLoss(model) with triplets made of the labels, or bertkit finetune csv --data FILE --model MODEL --out RUN --few-shot, which compares texts by their labels
losses | CachedGISTEmbedLoss | st | otherwise | bertkit.finetune("pairs", ..., config=FinetuneConfig(mine_negatives=5, max_negative=0.95)), which leaves out likely false negatives
losses | CachedMultipleNegativesRankingLoss | st | same | as there
losses | CachedMultipleNegativesSymmetricRankingLoss | st | otherwise | losses.MultipleNegativesSymmetricRankingLoss(model), which reads every batch in parts that fit the memory
losses | CoSENTLoss | st | same | as there
losses | ContrastiveLoss | st | otherwise | losses.CosineSimilarityLoss(model) for pairs with the labels 1 and 0, or losses.MultipleNegativesRankingLoss(model) for the pairs with 1 alone
losses | ContrastiveTensionDataLoader | st | otherwise | losses.MultipleNegativesRankingLoss(model) with each text as its own positive (SimCSE)
losses | ContrastiveTensionLoss | st | otherwise | losses.MultipleNegativesRankingLoss(model) with each text as its own positive (SimCSE)
losses | ContrastiveTensionLossInBatchNegatives | st | otherwise | losses.MultipleNegativesRankingLoss(model) with each text as its own positive (SimCSE)
losses | CosineSimilarityLoss | st | same | as there
losses | DenoisingAutoEncoderLoss | st | otherwise | losses.MultipleNegativesRankingLoss(model) with each text as its own positive (SimCSE)
losses | DistillKLDivLoss | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
losses | EmbedDistillLoss | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
losses | GISTEmbedLoss | st | otherwise | bertkit.finetune("pairs", ..., config=FinetuneConfig(mine_negatives=5, max_negative=0.95)), which leaves out likely false negatives
losses | GlobalOrthogonalRegularizationLoss | st | otherwise | losses.MultipleNegativesRankingLoss(model)
losses | MSELoss | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
losses | MarginMSELoss | st | otherwise | bertkit distill vectors --teacher MODEL --data texts.txt --student 3 --out FOLDER
losses | Matryoshka2dLoss | st | otherwise | losses.MatryoshkaLoss(model, loss, matryoshka_dims=[...]), and bertkit shrink MODEL --keep-layers 3 --out FOLDER for fewer layers
losses | MatryoshkaLoss | st | same | as there
losses | MegaBatchMarginLoss | st | otherwise | losses.MultipleNegativesRankingLoss(model) with a large batch
losses | MultipleNegativesRankingLoss | st | same | as there
losses | MultipleNegativesSymmetricRankingLoss | st | same | as there
losses | OnlineContrastiveLoss | st | otherwise | losses.CosineSimilarityLoss(model) for pairs with the labels 1 and 0, or losses.MultipleNegativesRankingLoss(model) for the pairs with 1 alone
losses | SiameseDistanceMetric | st | otherwise | losses.TripletDistanceMetric
losses | SoftmaxLoss | st | otherwise | bertkit.finetune("mnli", data="FOLDER", model="MODEL", out="RUN") for a classifier of pairs, or losses.MultipleNegativesRankingLoss(model) with the pairs that entail each other for vectors
losses | TripletDistanceMetric | st | same | as there
losses | TripletLoss | st | same | as there
model_kwargs | attn_implementation | st | nothing | the attention is chosen by the processor
model_kwargs | device_map | st | nothing | device= says where
model_kwargs | file_name | st | otherwise | bertkit export MODEL --out FOLDER, and SentenceTransformer(FOLDER)
model_kwargs | low_cpu_mem_usage | st | nothing | weights are mapped from the file
model_kwargs | provider | st | otherwise | bertkit export MODEL --out FOLDER, and SentenceTransformer(FOLDER)
model_kwargs | use_safetensors | st | nothing | pickles are never opened
models | Asym | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | BoW | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | CLIPModel | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | CNN | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | Dropout | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | LSTM | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | Router | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | StaticEmbedding | st | otherwise | bertkit word-vectors distill --model MODEL --out FOLDER, and SentenceTransformer(FOLDER)
models | WeightedLayerPooling | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
models | WordEmbeddings | st | otherwise | bertkit word-vectors distill --model MODEL --out FOLDER, and SentenceTransformer(FOLDER)
models | WordWeights | st | otherwise | models.Transformer, models.Pooling, models.Dense, models.LayerNorm, models.Normalize
optimizer_params | betas | st | nothing | those of AdamW
optimizer_params | correct_bias | st | nothing | those of AdamW
optimizer_params | eps | st | nothing | those of AdamW
predict | batch_size | st | nothing | batches are formed by numbers of tokens; one process uses all cores
predict | chunk_size | st | nothing | batches are formed by numbers of tokens; one process uses all cores
predict | device | st | nothing | batches are formed by numbers of tokens; one process uses all cores
predict | num_workers | st | nothing | batches are formed by numbers of tokens; one process uses all cores
predict | pool | st | nothing | batches are formed by numbers of tokens; one process uses all cores
predict | prompt | st | otherwise | the prompt before each query
predict | prompt_name | st | otherwise | the prompt before each query
quantization | semantic_search_faiss | st | otherwise | util.semantic_search(query_embeddings, corpus_embeddings)
quantization | semantic_search_usearch | st | otherwise | util.semantic_search(query_embeddings, corpus_embeddings)
save_pretrained | create_model_card | st | nothing | weights are written as safetensors; a model card is written by bertkit.finetune
save_pretrained | model_name | st | nothing | weights are written as safetensors; a model card is written by bertkit.finetune
save_pretrained | safe_serialization | st | nothing | weights are written as safetensors; a model card is written by bertkit.finetune
save_pretrained | train_datasets | st | nothing | weights are written as safetensors; a model card is written by bertkit.finetune
settings | num_train_epochs | tf | otherwise | epochs=
settings | output_dir | tf | otherwise | out=
settings | per_device_train_batch_size | tf | otherwise | batch_size=
sparse_encoder.evaluation | ReciprocalRankFusionEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseBinaryClassificationEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseEmbeddingSimilarityEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseInformationRetrievalEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseMSEEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseNanoBEIREvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseRerankingEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseTranslationEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.evaluation | SparseTripletEvaluator | st | otherwise | bertkit evaluate sparse-pairs --data FILE --model MODEL
sparse_encoder.losses | CSRLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | CSRReconstructionLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | CachedSpladeLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | FlopsLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseAnglELoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseCoSENTLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseCosineSimilarityLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseDistillKLDivLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseMSELoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseMarginMSELoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SparseMultipleNegativesRankingLoss | st | same | as there
sparse_encoder.losses | SparseTripletLoss | st | otherwise | SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), 3e-5, 5e-5)
sparse_encoder.losses | SpladeLoss | st | same | as there
tokenizer_kwargs | padding_side | st | nothing | nothing is padded
tokenizer_kwargs | use_fast | st | nothing | there is one tokenizer
util | SimilarityFunction | st | same | as there
util | batch_to_device | st | same | as there
util | community_detection | st | same | as there
util | cos_sim | st | same | as there
util | dot_score | st | same | as there
util | euclidean_sim | st | same | as there
util | get_device_name | st | otherwise | "auto" as device=
util | http_get | st | otherwise | urllib.request.urlretrieve(url, path)
util | information_retrieval | st | otherwise | util.semantic_search(query_embeddings, corpus_embeddings)
util | manhattan_sim | st | same | as there
util | maxsim | st | otherwise | util.cos_sim (there is no model of several vectors a text)
util | mine_hard_negatives | st | otherwise | bertkit.finetune("pairs", data="pairs.jsonl", model="MODEL", out="RUN", config=FinetuneConfig(mine_negatives=5))
util | normalize_embeddings | st | same | as there
util | pairwise_angle_sim | st | same | as there
util | pairwise_cos_sim | st | same | as there
util | pairwise_dot_score | st | same | as there
util | pairwise_euclidean_sim | st | same | as there
util | pairwise_manhattan_sim | st | same | as there
util | paraphrase_mining | st | same | as there
util | paraphrase_mining_embeddings | st | same | as there
util | pytorch_cos_sim | st | same | as there
util | quantize_embeddings | st | same | as there
util | semantic_search | st | same | as there
util | truncate_embeddings | st | same | as there
"""  # noqa: E501  (a row is a line)
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
