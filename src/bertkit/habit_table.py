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
SetFitModel | cache_dir | setfit | nothing | models are kept in the cache of the Hub
SetFitModel | device | setfit | same | as there
SetFitModel | force_download | setfit | nothing | a model is downloaded once
SetFitModel | head_params | setfit | same | kept for model_head; the head is bertkit's logistic regression
SetFitModel | labels | setfit | same | as there
SetFitModel | local_files_only | setfit | nothing | what is in the cache is not asked for again
SetFitModel | model_body | setfit | otherwise | SetFitModel.from_pretrained(MODEL)
SetFitModel | model_card_data | setfit | nothing | bertkit finetune writes a model card
SetFitModel | model_head | setfit | otherwise | make_pipeline(BertVectorizer(MODEL), HEAD) of scikit-learn
SetFitModel | multi_target_strategy | setfit | same | as there
SetFitModel | normalize_embeddings | setfit | same | as there
SetFitModel | proxies | setfit | nothing | HTTPS_PROXY is read
SetFitModel | resume_download | setfit | nothing | downloads are always resumed
SetFitModel | revision | setfit | same | as there
SetFitModel | token | setfit | nothing | HF_TOKEN is read
SetFitModel | trust_remote_code | setfit | nothing | no program of a checkpoint is run
SetFitModel | use_auth_token | setfit | nothing | HF_TOKEN is read
SetFitModel | use_differentiable_head | setfit | same | predictions are tensors; the head is the exact logistic regression
SetFitModel | use_peft | other | otherwise | bertkit.finetune(..., config=bertkit.FinetuneConfig(lora=8))
SetFitModel. | create_model_card | setfit | otherwise | bertkit finetune csv --few-shot, whose folder has a model card
SetFitModel. | encode | setfit | same | after the training the vectors that the head reads
SetFitModel. | fit | setfit | same | the head alone, exactly
SetFitModel. | freeze | setfit | otherwise | model.fit(texts, labels), which trains the head alone
SetFitModel. | generate_model_card | setfit | otherwise | bertkit finetune csv --few-shot, whose folder has a model card
SetFitModel. | id2label | setfit | same | as there
SetFitModel. | label2id | setfit | same | as there
SetFitModel. | labels | setfit | same | as there
SetFitModel. | model_body | setfit | same | a SentenceEncoder
SetFitModel. | model_head | setfit | same | a LogisticRegression, or one for each label
SetFitModel. | predict | setfit | same | as there
SetFitModel. | predict_proba | setfit | same | as there
SetFitModel. | push_to_hub | setfit | otherwise | model.save_pretrained("FOLDER"), then: hf upload NAME FOLDER
SetFitModel. | save_pretrained | setfit | same | a folder without a pickle, which pipeline opens
SetFitModel. | unfreeze | setfit | otherwise | Trainer(model=model, train_dataset=rows).train(), which trains encoder and head
Trainer | args | tf | same | as there
Trainer | callbacks | tf | same | as there
Trainer | compute_loss_func | tf | same | as there
Trainer | compute_metrics | tf | same | as there
Trainer | compute_objective | tf | otherwise | bertkit.finetune(..., config=bertkit.FinetuneConfig(search=20))
Trainer | data_collator | tf | same | as there
Trainer | data_loader | other | otherwise | train_dataset=
Trainer | eval_data | other | otherwise | eval_dataset=
Trainer | eval_dataset | tf | same | as there
Trainer | learning_rate | other | otherwise | args=TrainingArguments(learning_rate=)
Trainer | loss_func | other | otherwise | compute_loss_func=
Trainer | metrics | other | otherwise | compute_metrics=
Trainer | model | tf | same | as there
Trainer | model_init | tf | same | as there
Trainer | num_epochs | other | otherwise | args=TrainingArguments(num_train_epochs=)
Trainer | optimizer | tf | otherwise | optimizers=(optimizer, None)
Trainer | optimizer_cls_and_kwargs | tf | otherwise | optimizers=(optimizer_class(model.parameters(), ...), None)
Trainer | optimizers | tf | same | as there
Trainer | preprocess_logits_for_metrics | tf | same | as there
Trainer | processing_class | tf | same | as there
Trainer | tokenizer | tf | same | the older name of processing_class
Trainer | train_data | other | otherwise | train_dataset=
Trainer | train_dataset | tf | same | as there
Trainer. | accelerator | tf | otherwise | trainer.model and trainer.args (one device)
Trainer. | add_callback | tf | same | as there
Trainer. | compute_loss | tf | same | as there
Trainer. | create_model_card | tf | otherwise | bertkit.finetune(...), whose run folder has a model card
Trainer. | create_optimizer | tf | same | as there
Trainer. | evaluate | tf | same | as there
Trainer. | get_eval_dataloader | tf | same | as there
Trainer. | get_test_dataloader | tf | same | as there
Trainer. | get_train_dataloader | tf | same | as there
Trainer. | hyperparameter_search | tf | otherwise | bertkit.finetune(..., config=bertkit.FinetuneConfig(search=20)), or: bertkit finetune TASK --data train.csv --model MODEL --out OUT --search 20
Trainer. | is_world_process_zero | tf | same | as there: one process
Trainer. | log | tf | same | as there
Trainer. | log_metrics | tf | same | as there
Trainer. | pop_callback | tf | same | as there
Trainer. | predict | tf | same | as there
Trainer. | prediction_step | tf | same | as there
Trainer. | push_to_hub | tf | otherwise | trainer.model.push_to_hub("NAME")
Trainer. | remove_callback | tf | same | as there
Trainer. | save_metrics | tf | same | as there
Trainer. | save_model | tf | same | as there
Trainer. | save_state | tf | same | as there
Trainer. | state | tf | same | as there
Trainer. | train | tf | same | as there
TrainingArguments | accelerator_config | tf | nothing | one device
TrainingArguments | activation_checkpointing | tf | nothing | packed rows need less memory; gradient_accumulation_steps= splits a step
TrainingArguments | activation_checkpointing_kwargs | tf | nothing | see activation_checkpointing
TrainingArguments | adam_beta1 | tf | same | as there
TrainingArguments | adam_beta2 | tf | same | as there
TrainingArguments | adam_epsilon | tf | same | as there
TrainingArguments | auto_find_batch_size | tf | nothing | gradient_accumulation_steps= splits a step
TrainingArguments | average_tokens_across_devices | tf | nothing | one device
TrainingArguments | batch_eval_metrics | tf | otherwise | compute_metrics= of Trainer, which gets all rows together
TrainingArguments | batch_size | other | otherwise | per_device_train_batch_size=
TrainingArguments | bf16 | tf | same | as there
TrainingArguments | bf16_full_eval | tf | nothing | an evaluation computes in float32
TrainingArguments | data_seed | tf | same | as there
TrainingArguments | dataloader_drop_last | tf | same | of the training; an evaluation reads all rows
TrainingArguments | dataloader_in_order | tf | nothing | batches are made in order
TrainingArguments | dataloader_multiprocessing_context | tf | nothing | batches are made as they are needed
TrainingArguments | dataloader_num_workers | tf | nothing | batches are made as they are needed
TrainingArguments | dataloader_persistent_workers | tf | nothing | batches are made as they are needed
TrainingArguments | dataloader_pin_memory | tf | nothing | batches are made as they are needed
TrainingArguments | dataloader_prefetch_factor | tf | nothing | batches are made as they are needed
TrainingArguments | ddp_backend | tf | nothing | one device
TrainingArguments | ddp_broadcast_buffers | tf | nothing | one device
TrainingArguments | ddp_bucket_cap_mb | tf | nothing | one device
TrainingArguments | ddp_find_unused_parameters | tf | nothing | one device
TrainingArguments | ddp_static_graph | tf | nothing | one device
TrainingArguments | ddp_timeout | tf | nothing | one device
TrainingArguments | debug | tf | nothing | a batch that fails is always explained
TrainingArguments | deepspeed | tf | otherwise | one device here; pretrain and finetune commands say what they shard
TrainingArguments | disable_tqdm | tf | same | as there
TrainingArguments | do_eval | tf | same | kept, without effect, as there
TrainingArguments | do_predict | tf | same | kept, without effect, as there
TrainingArguments | do_train | tf | same | kept, without effect, as there
TrainingArguments | early_stopping_patience | tf | otherwise | callbacks=[EarlyStoppingCallback(3)] of Trainer
TrainingArguments | enable_jit_checkpoint | tf | nothing | Ctrl-C ends a training; checkpoints follow save_strategy
TrainingArguments | epochs | other | otherwise | num_train_epochs=
TrainingArguments | eval_accumulation_steps | tf | nothing | outputs are moved to the CPU batch by batch
TrainingArguments | eval_delay | tf | otherwise | eval_strategy="steps", eval_steps=N
TrainingArguments | eval_do_concat_batches | tf | nothing | outputs of batches are always joined
TrainingArguments | eval_on_start | tf | otherwise | trainer.evaluate() before trainer.train()
TrainingArguments | eval_steps | tf | same | as there
TrainingArguments | eval_strategy | tf | same | as there
TrainingArguments | eval_use_gather_object | tf | nothing | one device
TrainingArguments | evaluation_strategy | tf | same | the older name of eval_strategy
TrainingArguments | fp16 | tf | same | as there
TrainingArguments | fp16_full_eval | tf | nothing | an evaluation computes in float32
TrainingArguments | fp16_opt_level | tf | nothing | fp16=True is torch's mixed precision
TrainingArguments | fsdp | tf | nothing | one device
TrainingArguments | fsdp_config | tf | nothing | one device
TrainingArguments | full_determinism | tf | nothing | a seed gives the same weights on one machine
TrainingArguments | gradient_accumulation_steps | tf | same | as there
TrainingArguments | gradient_checkpointing | tf | nothing | packed rows need less memory; gradient_accumulation_steps= splits a step
TrainingArguments | gradient_checkpointing_kwargs | tf | nothing | see gradient_checkpointing
TrainingArguments | greater_is_better | tf | same | as there
TrainingArguments | group_by_length | tf | nothing | padding is never computed
TrainingArguments | half_precision_backend | tf | nothing | torch's own
TrainingArguments | hub_always_push | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | hub_model_id | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | hub_private_repo | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | hub_revision | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | hub_strategy | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | hub_token | tf | nothing | only with push_to_hub=True, which is refused
TrainingArguments | ignore_data_skip | tf | nothing | a resumed training goes on where it was at once
TrainingArguments | include_for_metrics | tf | otherwise | compute_metrics= of Trainer with predictions and label_ids
TrainingArguments | include_inputs_for_metrics | tf | otherwise | compute_metrics= of Trainer with predictions and label_ids
TrainingArguments | include_num_input_tokens_seen | tf | nothing | tokens are not counted
TrainingArguments | include_tokens_per_second | tf | nothing | rows a second are logged
TrainingArguments | jit_mode_eval | tf | nothing | torch_compile=True compiles
TrainingArguments | label_names | tf | same | as there
TrainingArguments | label_smoothing_factor | tf | same | only 0
TrainingArguments | learning_rate | tf | same | as there
TrainingArguments | length_column_name | tf | nothing | padding is never computed
TrainingArguments | liger_kernel_config | tf | nothing | bertkit has its own kernels
TrainingArguments | load_best_model_at_end | tf | same | as there
TrainingArguments | local_rank | tf | nothing | one device
TrainingArguments | log_level | tf | nothing | disable_tqdm=True is silent
TrainingArguments | log_level_replica | tf | nothing | one device
TrainingArguments | log_on_each_node | tf | nothing | one device
TrainingArguments | logging_dir | tf | nothing | trainer_state.json has the log
TrainingArguments | logging_first_step | tf | same | as there
TrainingArguments | logging_nan_inf_filter | tf | nothing | a loss that is not finite ends the training
TrainingArguments | logging_steps | tf | same | as there
TrainingArguments | logging_strategy | tf | same | as there
TrainingArguments | lr | other | otherwise | learning_rate=
TrainingArguments | lr_scheduler_kwargs | tf | same | as there
TrainingArguments | lr_scheduler_type | tf | same | as there
TrainingArguments | max_epochs | other | otherwise | num_train_epochs=
TrainingArguments | max_grad_norm | tf | same | as there
TrainingArguments | max_steps | tf | same | as there
TrainingArguments | metric_for_best_model | tf | same | as there
TrainingArguments | model_name_or_path | tf | otherwise | model=AutoModelForSequenceClassification.from_pretrained(NAME) of Trainer
TrainingArguments | neftune_noise_alpha | tf | otherwise | a subclass of Trainer with its own compute_loss
TrainingArguments | no_cuda | tf | same | the older name of use_cpu
TrainingArguments | num_epochs | setfit | otherwise | num_train_epochs=
TrainingArguments | num_train_epochs | tf | same | as there
TrainingArguments | optim | tf | same | AdamW, by its four names
TrainingArguments | optim_args | tf | otherwise | optimizers=(optimizer, None) of Trainer
TrainingArguments | optim_target_modules | tf | otherwise | optimizers=(optimizer, None) of Trainer
TrainingArguments | output_dir | tf | same | as there
TrainingArguments | overwrite_output_dir | tf | nothing | a new training writes its checkpoints again
TrainingArguments | parallelism_config | tf | nothing | one device
TrainingArguments | past_index | tf | nothing | no encoder has one
TrainingArguments | per_device_eval_batch_size | tf | same | as there
TrainingArguments | per_device_train_batch_size | tf | same | as there
TrainingArguments | per_gpu_eval_batch_size | tf | otherwise | per_device_eval_batch_size=
TrainingArguments | per_gpu_train_batch_size | tf | otherwise | per_device_train_batch_size=
TrainingArguments | prediction_loss_only | tf | same | as there
TrainingArguments | project | tf | nothing | report_to="none"
TrainingArguments | push_to_hub | tf | same | only False
TrainingArguments | remove_unused_columns | tf | same | as there
TrainingArguments | report_to | tf | same | only to nowhere: a TrainerCallback passes logs on
TrainingArguments | restore_callback_states_from_checkpoint | tf | nothing | callbacks keep their own state
TrainingArguments | resume_from_checkpoint | tf | same | kept, as there; train(resume_from_checkpoint=) continues
TrainingArguments | run_name | tf | same | kept
TrainingArguments | save_on_each_node | tf | nothing | one device
TrainingArguments | save_only_model | tf | same | as there
TrainingArguments | save_safetensors | tf | nothing | weights are always safetensors
TrainingArguments | save_steps | tf | same | as there
TrainingArguments | save_strategy | tf | same | as there; each checkpoint can be resumed
TrainingArguments | save_total_limit | tf | same | as there
TrainingArguments | seed | tf | same | the order of rows is bertkit's own
TrainingArguments | sharded_ddp | tf | nothing | one device
TrainingArguments | skip_memory_metrics | tf | nothing | memory is not logged
TrainingArguments | tf32 | tf | nothing | torch's own setting stays
TrainingArguments | torch_compile | tf | same | the model is compiled
TrainingArguments | torch_compile_backend | tf | nothing | the default back-end
TrainingArguments | torch_compile_mode | tf | nothing | the default mode
TrainingArguments | torch_empty_cache_steps | tf | nothing | memory is kept for the next step
TrainingArguments | torchdynamo | tf | otherwise | torch_compile=True
TrainingArguments | trackio_bucket_id | tf | nothing | report_to="none"
TrainingArguments | trackio_space_id | tf | nothing | report_to="none"
TrainingArguments | trackio_static_space_id | tf | nothing | report_to="none"
TrainingArguments | train_sampling_strategy | tf | same | group_by_length as random: padding is never computed
TrainingArguments | use_cache | tf | nothing | no encoder has one
TrainingArguments | use_cpu | tf | same | as there
TrainingArguments | use_ipex | tf | nothing | bertkit has its own kernels
TrainingArguments | use_legacy_prediction_loop | tf | nothing | there is one loop
TrainingArguments | use_liger_kernel | tf | nothing | bertkit has its own kernels
TrainingArguments | use_mps_device | tf | nothing | use_cpu=True chooses the CPU, else a GPU where there is one
TrainingArguments | warmup_ratio | tf | same | as in transformers 4
TrainingArguments | warmup_steps | tf | same | as there
TrainingArguments | weight_decay | tf | same | as there
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
import | AbsaModel | setfit | otherwise | from bertkit.setfit import SetFitModel, trained on "text" and "aspect: text" rows; aspects are found by: bertkit finetune ner --data train.txt --model MODEL --out OUT
import | AbsaTrainer | setfit | otherwise | from bertkit.setfit import Trainer; aspects are found by: bertkit finetune ner --data train.txt --model MODEL --out OUT
import | DistillationTrainer | setfit | otherwise | bertkit distill (bertkit distill --help)
import | EarlyStoppingCallback | tf | same | as there
import | EvalPrediction | tf | same | as there
import | FlaxAutoModel | tf | otherwise | from bertkit import AutoModel (PyTorch)
import | FlaxAutoModelForSequenceClassification | tf | otherwise | from bertkit import AutoModelForSequenceClassification (PyTorch)
import | FlaxBertModel | tf | otherwise | from bertkit import BertModel (PyTorch)
import | KerasMetricCallback | tf keras | otherwise | from bertkit import Trainer, with compute_metrics=
import | PrinterCallback | tf | same | as there
import | PushToHubCallback | tf keras | otherwise | model.push_to_hub("NAME") after the training
import | Seq2SeqTrainer | tf | otherwise | bertkit.finetune("summarize", data="DATA", model="MODEL", out="OUT"), or: bertkit finetune summarize --data DATA --model MODEL --out OUT
import | Seq2SeqTrainingArguments | tf | otherwise | bertkit.finetune("summarize", data="DATA", model="MODEL", out="OUT", config=bertkit.FinetuneConfig(epochs=3))
import | SetFitHead | setfit | otherwise | from bertkit import SetFitModel, whose model_head is a LogisticRegression
import | SetFitModel | setfit | same | as there
import | SetFitTrainer | setfit | otherwise | from bertkit.setfit import Trainer, TrainingArguments
import | TFAutoModel | tf keras | otherwise | from bertkit import AutoModel (PyTorch)
import | TFAutoModelForMaskedLM | tf keras | otherwise | from bertkit import AutoModelForMaskedLM (PyTorch)
import | TFAutoModelForMultipleChoice | tf keras | otherwise | from bertkit import AutoModelForMultipleChoice (PyTorch)
import | TFAutoModelForQuestionAnswering | tf keras | otherwise | from bertkit import AutoModelForQuestionAnswering (PyTorch)
import | TFAutoModelForSequenceClassification | tf keras | otherwise | from bertkit import AutoModelForSequenceClassification (PyTorch); to train as by Keras' fit: bertkit.BertClassifier(MODEL).fit(texts, labels)
import | TFAutoModelForTokenClassification | tf keras | otherwise | from bertkit import AutoModelForTokenClassification (PyTorch)
import | TFBertForMaskedLM | tf keras | otherwise | from bertkit import BertForMaskedLM (PyTorch)
import | TFBertForQuestionAnswering | tf keras | otherwise | from bertkit import BertForQuestionAnswering (PyTorch)
import | TFBertForSequenceClassification | tf keras | otherwise | from bertkit import BertForSequenceClassification (PyTorch); to train as by Keras' fit: bertkit.BertClassifier(MODEL).fit(texts, labels)
import | TFBertForTokenClassification | tf keras | otherwise | from bertkit import BertForTokenClassification (PyTorch)
import | TFBertModel | tf keras | otherwise | from bertkit import BertModel (PyTorch)
import | TFDistilBertForSequenceClassification | tf keras | otherwise | from bertkit import DistilBertForSequenceClassification (PyTorch); to train as by Keras' fit: bertkit.BertClassifier(MODEL).fit(texts, labels)
import | TFDistilBertModel | tf keras | otherwise | from bertkit import DistilBertModel (PyTorch)
import | TFRobertaForSequenceClassification | tf keras | otherwise | from bertkit import RobertaForSequenceClassification (PyTorch); to train as by Keras' fit: bertkit.BertClassifier(MODEL).fit(texts, labels)
import | TFRobertaModel | tf keras | otherwise | from bertkit import RobertaModel (PyTorch)
import | Trainer | tf | same | as there
import | TrainerCallback | tf | same | as there
import | TrainerControl | tf | same | as there
import | TrainerState | tf | same | as there
import | TrainingArguments | tf | same | as there
import | create_optimizer | tf keras | otherwise | TrainingArguments(learning_rate=, weight_decay=, warmup_steps=) of bertkit.Trainer, which makes AdamW and its schedule
import | sample_dataset | setfit | otherwise | from bertkit.setfit import sample_dataset
setfit | AbsaModel | setfit | otherwise | from bertkit.setfit import SetFitModel, trained on rows of an aspect and its text; aspects are found by: bertkit finetune ner --data train.txt --model MODEL --out OUT
setfit | AbsaTrainer | setfit | otherwise | from bertkit.setfit import Trainer; aspects are found by: bertkit finetune ner --data train.txt --model MODEL --out OUT
setfit | AspectModel | setfit | otherwise | aspects are found by: bertkit finetune ner --data train.txt --model MODEL --out OUT
setfit | DistillationSetFitTrainer | setfit | otherwise | bertkit distill (bertkit distill --help)
setfit | DistillationTrainer | setfit | otherwise | bertkit distill (bertkit distill --help)
setfit | EarlyStoppingCallback | setfit | same | as there
setfit | PolarityModel | setfit | otherwise | from bertkit.setfit import SetFitModel, trained on rows of an aspect and its text
setfit | SetFitHead | setfit | otherwise | from bertkit.setfit import SetFitModel, whose model_head is a LogisticRegression
setfit | SetFitModel | setfit | same | as there
setfit | SetFitModelCardData | setfit | otherwise | bertkit finetune csv --few-shot, whose folder has a model card
setfit | SetFitTrainer | setfit | otherwise | from bertkit.setfit import Trainer, TrainingArguments
setfit | SupConLoss | setfit | otherwise | TrainingArguments() (the cosine loss, or CoSENT above eight labels)
setfit | Trainer | setfit | same | as there
setfit | TrainerCallback | setfit | same | as there
setfit | TrainingArguments | setfit | same | as there
setfit | exporters | setfit | otherwise | model.save_pretrained("FOLDER"), then: bertkit export FOLDER --out ONNX_FOLDER
setfit | get_templated_dataset | setfit | same | as there
setfit | sample_dataset | setfit | same | as there
setfit.Trainer | args | setfit | same | as there
setfit.Trainer | args_class | setfit | otherwise | args=TrainingArguments(...)
setfit.Trainer | batch_size | setfit | otherwise | args=TrainingArguments(batch_size=)
setfit.Trainer | callbacks | setfit | same | as there
setfit.Trainer | column_mapping | setfit | same | as there
setfit.Trainer | compute_metrics | tf | otherwise | metric=, a function of predictions and labels
setfit.Trainer | eval_dataset | setfit | same | as there
setfit.Trainer | learning_rate | setfit | otherwise | args=TrainingArguments(body_learning_rate=)
setfit.Trainer | loss_class | setfit | otherwise | args=TrainingArguments(loss=)
setfit.Trainer | metric | setfit | same | as there
setfit.Trainer | metric_kwargs | setfit | same | as there
setfit.Trainer | model | setfit | same | as there
setfit.Trainer | model_init | setfit | same | as there
setfit.Trainer | num_epochs | setfit | otherwise | args=TrainingArguments(num_epochs=)
setfit.Trainer | num_iterations | setfit | otherwise | args=TrainingArguments(num_iterations=)
setfit.Trainer | train_dataset | setfit | same | as there
setfit.Trainer. | add_callback | setfit | same | as there
setfit.Trainer. | evaluate | setfit | same | as there
setfit.Trainer. | freeze | setfit | otherwise | model.fit(texts, labels), which trains the head alone
setfit.Trainer. | hyperparameter_search | setfit | otherwise | bertkit.finetune("csv", data="train.csv", model="MODEL", out="OUT", config=bertkit.FinetuneConfig(search=10)); few_shot=True chooses its method by cross-validation
setfit.Trainer. | pop_callback | setfit | same | as there
setfit.Trainer. | push_to_hub | setfit | otherwise | model.save_pretrained("FOLDER"), then: hf upload NAME FOLDER
setfit.Trainer. | remove_callback | setfit | same | as there
setfit.Trainer. | state | setfit | same | as there
setfit.Trainer. | train | setfit | same | as there
setfit.Trainer. | train_classifier | setfit | otherwise | model.fit(texts, labels), which trains the head alone
setfit.Trainer. | train_embeddings | setfit | otherwise | trainer.train()
setfit.Trainer. | unfreeze | setfit | otherwise | trainer.train(), which trains encoder and head
setfit.TrainingArguments | batch_size | setfit | same | kept, without effect: a step compares up to 32 pairs
setfit.TrainingArguments | body_learning_rate | setfit | same | as there
setfit.TrainingArguments | distance_metric | setfit | nothing | pairs are compared by their cosine
setfit.TrainingArguments | end_to_end | setfit | same | only False
setfit.TrainingArguments | epochs | other | otherwise | num_epochs=
setfit.TrainingArguments | eval_delay | setfit | nothing | nothing is evaluated during the training
setfit.TrainingArguments | eval_max_steps | setfit | nothing | nothing is evaluated during the training
setfit.TrainingArguments | eval_steps | setfit | nothing | nothing is evaluated during the training
setfit.TrainingArguments | eval_strategy | setfit | same | kept, without effect: a line says so
setfit.TrainingArguments | evaluation_strategy | setfit | same | the older name of eval_strategy
setfit.TrainingArguments | greater_is_better | setfit | same | kept, without effect
setfit.TrainingArguments | head_learning_rate | setfit | same | kept, without effect: the head is exact
setfit.TrainingArguments | l2_weight | setfit | same | kept, without effect: the head is exact
setfit.TrainingArguments | learning_rate | setfit | otherwise | body_learning_rate=
setfit.TrainingArguments | load_best_model_at_end | setfit | same | kept, without effect: a line says so
setfit.TrainingArguments | logging_dir | setfit | nothing | trainer.state.log_history has the log
setfit.TrainingArguments | logging_first_step | setfit | same | as there
setfit.TrainingArguments | logging_steps | setfit | same | as there
setfit.TrainingArguments | logging_strategy | setfit | same | as there
setfit.TrainingArguments | loss | setfit | same | CosineSimilarityLoss, or CoSENTLoss above eight labels
setfit.TrainingArguments | margin | setfit | nothing | of a triplet loss, which is refused
setfit.TrainingArguments | max_length | setfit | same | as there
setfit.TrainingArguments | max_steps | setfit | same | as there
setfit.TrainingArguments | metric_for_best_model | setfit | same | kept, without effect
setfit.TrainingArguments | num_epochs | setfit | same | how often as many pairs
setfit.TrainingArguments | num_iterations | setfit | same | half the pairs of each text
setfit.TrainingArguments | num_train_epochs | tf | otherwise | num_epochs=
setfit.TrainingArguments | output_dir | setfit | same | kept, without effect: nothing is written before save_pretrained
setfit.TrainingArguments | per_device_train_batch_size | tf | otherwise | batch_size=
setfit.TrainingArguments | report_to | setfit | nothing | a TrainerCallback passes logs on
setfit.TrainingArguments | run_name | setfit | nothing | a TrainerCallback passes logs on
setfit.TrainingArguments | samples_per_label | setfit | nothing | of a triplet loss, which is refused
setfit.TrainingArguments | sampling_strategy | setfit | same | kept, without effect: pairs are balanced
setfit.TrainingArguments | save_steps | setfit | nothing | model.save_pretrained(FOLDER) after the training
setfit.TrainingArguments | save_strategy | setfit | same | kept, without effect
setfit.TrainingArguments | save_total_limit | setfit | nothing | model.save_pretrained(FOLDER) after the training
setfit.TrainingArguments | seed | setfit | same | as there
setfit.TrainingArguments | show_progress_bar | setfit | same | as there
setfit.TrainingArguments | use_amp | setfit | nothing | few-shot training computes in float32
setfit.TrainingArguments | warmup_proportion | setfit | same | as there
setfit.TrainingArguments | warmup_ratio | tf | otherwise | warmup_proportion=
settings | num_train_epochs | tf | otherwise | epochs=
settings | output_dir | tf | otherwise | out=
settings | per_device_train_batch_size | tf | otherwise | batch_size=
"""  # noqa: E501  (a row is a line)


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
