"""What people type out of habit from other libraries, and what it means here: one table for every entry.

A row is what is typed (``entry``: where; ``name``: an import, a keyword, an attribute or an option), the libraries that
have it, and its meaning here: ``same`` (it works with the meaning it has there), ``nothing`` (it is accepted and has no
effect here; the last column says why) or ``otherwise`` (it is refused; the last column is what to write instead).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Literal, NamedTuple, get_args

from bertkit.errors import InputError, did_you_mean

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
encoding. | cuda | other | otherwise | encoding.to('cuda')
encoding. | ids | other | otherwise | encoding.input_ids
encoding. | input_id | other | otherwise | encoding.input_ids
encoding. | numpy | other | otherwise | tokenizer(text, return_tensors='np')
encoding. | offset_mapping | tf | otherwise | tokenizer(text, return_offsets_mapping=True).offset_mapping
encoding. | offsets | other | otherwise | tokenizer(text, return_offsets_mapping=True).offset_mapping
encoding. | overflowing | other | otherwise | tokenizer(text, return_overflowing_tokens=True)
encoding. | special_tokens_mask | tf | otherwise | tokenizer(text, return_special_tokens_mask=True)
encoding. | words | tf | otherwise | encoding.word_ids()
forward | head_mask | tf | otherwise | bertkit ablate, for the worth of heads
forward | label | tf | otherwise | labels=
forward | lm_labels | tf | otherwise | labels=
forward | masked_lm_labels | tf | otherwise | labels=
forward | past_key_values | tf | otherwise | model(input_ids) without it: an encoder reads a text at once
forward | targets | other | otherwise | labels=
forward | use_cache | tf | otherwise | model(input_ids) without it: an encoder reads a text at once
from_pretrained | add_pooling_layer | tf | nothing | the encoder has a pooler if the checkpoint has one
from_pretrained | attn_implementation | tf | nothing | attention chooses its implementation by itself, with the same results
from_pretrained | cache_dir | tf | otherwise | HF_HUB_CACHE=FOLDER in the environment
from_pretrained | config | tf | same
from_pretrained | device_map | tf | same
from_pretrained | force_download | tf | otherwise | hf cache delete once, and load it again
from_pretrained | from_flax | tf | otherwise | transformers' model.save_pretrained(FOLDER) once, and load FOLDER
from_pretrained | from_tf | tf | otherwise | bertkit convert CHECKPOINT --out FOLDER once, and load FOLDER
from_pretrained | id2label | tf | same
from_pretrained | ignore_mismatched_sizes | tf | same
from_pretrained | labels | other | otherwise | id2label=dict(enumerate(labels))
from_pretrained | load_in_4bit | tf | otherwise | bertkit quantize MODEL --out FOLDER once, and load FOLDER (8 bits)
from_pretrained | load_in_8bit | tf | otherwise | bertkit quantize MODEL --out FOLDER once, and load FOLDER
from_pretrained | local_files_only | tf | otherwise | HF_HUB_OFFLINE=1 in the environment
from_pretrained | low_cpu_mem_usage | tf | nothing | weights are never initialized or held twice
from_pretrained | n_labels | other | otherwise | num_labels=
from_pretrained | num_classes | other | otherwise | num_labels=
from_pretrained | num_labels | tf | same
from_pretrained | offload_folder | tf | nothing | a model is never spread over disk and devices
from_pretrained | output_attentions | tf | same
from_pretrained | output_hidden_states | tf | same
from_pretrained | output_loading_info | tf | otherwise | model.load_report, after loading
from_pretrained | pretrained_model_name_or_path | tf | otherwise | the name as the first argument
from_pretrained | problem_type | tf | same
from_pretrained | proxies | tf | otherwise | HTTPS_PROXY=... in the environment
from_pretrained | quantization_config | tf | otherwise | bertkit quantize MODEL --out FOLDER once, and load FOLDER
from_pretrained | resume_download | tf | nothing | downloads are always resumed
from_pretrained | return_dict | tf | otherwise | model(..., return_dict=False) at the call
from_pretrained | revision | tf | same
from_pretrained | state_dict | tf | otherwise | model = BertModel(config); model.load_state_dict(state_dict)
from_pretrained | subfolder | tf | otherwise | the path of that folder in place of the name
from_pretrained | token | tf | otherwise | HF_TOKEN=... in the environment, or hf auth login
from_pretrained | torch_dtype | tf | same
from_pretrained | trust_remote_code | tf | nothing | code from a checkpoint is never run
from_pretrained | use_auth_token | tf | otherwise | HF_TOKEN=... in the environment, or hf auth login
from_pretrained | use_fast | tf | nothing | every tokenizer is a fast one
from_pretrained | use_safetensors | tf | nothing | weights are always read from safetensors
from_pretrained | variant | tf | otherwise | the path of a folder with that file as model.safetensors
from_pretrained | weights_only | tf | nothing | weights are always read from safetensors
generate | beam_size | other | otherwise | num_beams=
generate | generation_config | tf | same
generate | logits_processor | tf | otherwise | repetition_penalty=, no_repeat_ngram_size=, forced_bos_token_id=
generate | max_new_tokens | tf | same
generate | max_tokens | other | otherwise | max_new_tokens=
generate | n | other | otherwise | num_return_sequences=
generate | num_beams | tf | same
generate | output_scores | tf | otherwise | model(input_ids, decoder_input_ids=written).logits
generate | return_dict_in_generate | tf | otherwise | model.generate(input_ids), whose result are the ids alone
generate | stopping_criteria | tf | otherwise | max_new_tokens=, or for tokens in model.stream(input_ids)
generate | streamer | tf | otherwise | for tokens in model.stream(input_ids)
generate | synced_gpus | tf | nothing | a model is on one device
generate | use_cache | tf | nothing | keys and values are always cached
import | Adafactor | tf | otherwise | from bertkit import AdamW
import | AutoFeatureExtractor | tf | otherwise | from bertkit import AutoTokenizer; bertkit reads text only
import | AutoImageProcessor | tf | otherwise | from transformers import AutoImageProcessor; bertkit reads text only
import | AutoModelForCausalLM | tf | otherwise | from bertkit import AutoModelForMaskedLM (fills masks), or AutoModelForSeq2SeqLM (BART and T5 write text)
import | AutoModelForImageClassification | tf | otherwise | from transformers import AutoModelForImageClassification; bertkit reads text only
import | AutoModelForImageTextToText | tf | otherwise | from transformers import AutoModelForImageTextToText; bertkit reads text only
import | AutoModelForObjectDetection | tf | otherwise | from transformers import AutoModelForObjectDetection; bertkit reads text only
import | AutoModelForSentenceEmbedding | other | otherwise | from bertkit import SentenceEncoder
import | AutoModelForSpeechSeq2Seq | tf | otherwise | from transformers import AutoModelForSpeechSeq2Seq; bertkit reads text only
import | AutoModelForTableQuestionAnswering | tf | otherwise | from bertkit import AutoModelForQuestionAnswering, which reads texts
import | AutoModelForVision2Seq | tf | otherwise | from transformers import AutoModelForVision2Seq; bertkit reads text only
import | AutoModelWithLMHead | tf | otherwise | from bertkit import AutoModelForMaskedLM
import | AutoProcessor | tf | otherwise | from bertkit import AutoTokenizer; bertkit reads text only
import | BertLMHeadModel | tf | otherwise | from bertkit import BertForMaskedLM
import | BigBirdModel | tf | otherwise | from bertkit import ModernBertModel, which reads long texts
import | BitsAndBytesConfig | tf | otherwise | bertkit quantize MODEL --out FOLDER
import | Conversation | tf | otherwise | from transformers import pipeline ('text-generation'); encoders have no chat
import | DataCollatorForPermutationLanguageModeling | tf | otherwise | from bertkit import DataCollatorForLanguageModeling
import | DataCollatorWithFlattening | tf | otherwise | model.forward_packed, which reads rows without padding
import | DebertaModel | tf | otherwise | from bertkit import DebertaV2Model
import | DebertaTokenizer | tf | otherwise | from bertkit import DebertaV2Tokenizer
import | EncoderDecoderModel | tf | otherwise | from bertkit import AutoModelForSeq2SeqLM (BART, T5)
import | GPT2LMHeadModel | tf | otherwise | from bertkit import AutoModelForSeq2SeqLM (BART, T5), or from transformers import GPT2LMHeadModel
import | GPT2Tokenizer | tf | otherwise | from bertkit import RobertaTokenizer, the same byte pairs, or from transformers import GPT2Tokenizer
import | HfArgumentParser | tf | otherwise | from bertkit import FinetuneConfig; the command line is 'bertkit finetune'
import | LineByLineTextDataset | tf | otherwise | bertkit pretrain, or a list of tokenizer(text) for DataCollatorForLanguageModeling
import | LogitsProcessor | tf | otherwise | model.generate(input_ids, repetition_penalty=..., no_repeat_ngram_size=...)
import | LongformerModel | tf | otherwise | from bertkit import ModernBertModel, which reads long texts
import | NerPipeline | tf | otherwise | from bertkit import TokenClassificationPipeline
import | PreTrainedModel | tf | otherwise | from bertkit import AutoModel
import | PreTrainedTokenizer | tf | otherwise | from bertkit import AutoTokenizer
import | PreTrainedTokenizerBase | tf | otherwise | from bertkit import AutoTokenizer
import | PreTrainedTokenizerFast | tf | otherwise | from bertkit import AutoTokenizer; AutoTokenizer.from_pretrained('tokenizer.json')
import | PretrainedConfig | tf | otherwise | from bertkit import AutoConfig
import | StoppingCriteria | tf | otherwise | model.generate(input_ids, max_new_tokens=...)
import | SummarizationPipeline | tf | otherwise | from bertkit import pipeline; pipeline('summarization', model=BART_OR_T5)
import | Text2TextGenerationPipeline | tf | otherwise | from bertkit import pipeline; pipeline('text2text-generation', model=BART_OR_T5)
import | TextDataset | tf | otherwise | bertkit pretrain, or a list of tokenizer(text) for DataCollatorForLanguageModeling
import | TextGenerationPipeline | tf | otherwise | from bertkit import pipeline; pipeline('text2text-generation', model=BART_OR_T5)
import | TextIteratorStreamer | tf | otherwise | for tokens in model.stream(input_ids)
import | TextStreamer | tf | otherwise | for tokens in model.stream(input_ids)
import | TranslationPipeline | tf | otherwise | from bertkit import pipeline; pipeline('translation', model=BART_OR_T5)
import | XLNetModel | tf | otherwise | from bertkit import DebertaV2Model
import | ZeroShotClassificationPipeline | tf | otherwise | from bertkit import pipeline; pipeline('zero-shot-classification', model=MODEL)
import | glue_compute_metrics | tf | otherwise | bertkit evaluate RUN
import | is_torch_available | tf | otherwise | importlib.util.find_spec('torch') is not None
import | load_dataset | other | otherwise | from datasets import load_dataset
import | logging | tf | otherwise | import logging; bertkit prints notes to stderr, and none with --quiet
import | squad_convert_examples_to_features | tf | otherwise | bertkit finetune squad
model. | add_adapter | tf | otherwise | bertkit finetune ... --adapter lora
model. | base_model | tf | same
model. | can_generate | tf | otherwise | hasattr(model, 'generate')
model. | compile | keras | otherwise | torch.compile(model)
model. | cuda_available | other | otherwise | torch.cuda.is_available()
model. | enable_input_require_grads | tf | otherwise | inputs_embeds=model.get_input_embeddings()(ids).requires_grad_()
model. | encode | st | otherwise | from bertkit import SentenceEncoder; SentenceEncoder(folder).encode(texts)
model. | fit | keras | otherwise | from bertkit import finetune, or BertClassifier().fit(texts, labels)
model. | from_config | tf | otherwise | AutoModel.from_config(config), or the class called with the config
model. | generate | tf | otherwise | from bertkit import AutoModelForSeq2SeqLM (BART, T5); an encoder writes no text
model. | generation_config | tf | otherwise | model.generation_settings of a BART or T5
model. | get_input_embeddings | tf | same
model. | get_memory_footprint | tf | same
model. | get_output_embeddings | tf | otherwise | model.get_input_embeddings(), the same table
model. | hf_device_map | tf | otherwise | model.device
model. | hidden_size | other | otherwise | model.config.hidden_size
model. | id2label | other | otherwise | model.config.id2label
model. | labels | other | otherwise | model.config.id2label
model. | name_or_path | tf | same
model. | num_labels | tf | same
model. | num_parameters | tf | same
model. | predict | keras | otherwise | model(**inputs).logits, or pipeline(task, model=model, tokenizer=tokenizer)(texts)
model. | prune_heads | tf | otherwise | bertkit ablate, which shows what heads are worth; heads are not removed
model. | resize_token_embeddings | tf | same
model. | summary | keras | otherwise | print(model), or model.num_parameters()
model. | tie_weights | tf | otherwise | nothing: tied tables stay tied
model. | tokenizer | other | otherwise | AutoTokenizer.from_pretrained(model.name_or_path)
output. | embeddings | other | otherwise | outputs.last_hidden_state
output. | hidden_state | other | otherwise | outputs.last_hidden_state
output. | items | tf | otherwise | ((name, outputs[name]) for name in outputs)
output. | last_hidden_states | tf | otherwise | outputs.last_hidden_state
output. | pooled_output | tf | otherwise | outputs.pooler_output
output. | predictions | other | otherwise | outputs.logits
output. | probabilities | other | otherwise | outputs.logits.softmax(dim=-1)
output. | probs | other | otherwise | outputs.logits.softmax(dim=-1)
output. | scores | other | otherwise | outputs.logits
output. | sentence_embedding | st | otherwise | from bertkit import SentenceEncoder; SentenceEncoder(folder).encode(texts)
output. | to_dict | other | otherwise | dict(outputs)
output. | values | tf | otherwise | outputs.to_tuple()
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
save_pretrained | is_main_process | tf | nothing | whoever calls it saves
save_pretrained | legacy_format | tf | nothing | both forms of the files are written
save_pretrained | max_shard_size | tf | nothing | weights are always one file
save_pretrained | push_to_hub | tf | otherwise | model.push_to_hub(name)
save_pretrained | safe_serialization | tf | nothing | weights are always saved as safetensors
save_pretrained | save_directory | tf | otherwise | the folder as the first argument
save_pretrained | state_dict | tf | otherwise | model.load_state_dict(state_dict) before saving
save_pretrained | variant | tf | otherwise | save_pretrained(folder) into a folder of its own
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
tokenizer | add_special_tokens | tf | otherwise | tokenizer(text, add_special_tokens=False) at the call
tokenizer | additional_special_tokens | tf | otherwise | tokenizer.add_special_tokens({'additional_special_tokens': [...]})
tokenizer | cache_dir | tf | otherwise | HF_HUB_CACHE=FOLDER in the environment
tokenizer | config | tf | otherwise | the name alone: the folder says which tokenizer it is
tokenizer | do_basic_tokenize | tf | nothing | text is always cut at white space and punctuation first
tokenizer | force_download | tf | otherwise | hf cache delete once, and load it again
tokenizer | legacy | tf | nothing | a tokenizer follows its files
tokenizer | local_files_only | tf | otherwise | HF_HUB_OFFLINE=1 in the environment
tokenizer | lowercase | other | otherwise | do_lower_case=
tokenizer | max_len | tf | otherwise | model_max_length=
tokenizer | max_length | other | otherwise | model_max_length=
tokenizer | subfolder | tf | otherwise | the path of that folder in place of the name
tokenizer | token | tf | otherwise | HF_TOKEN=... in the environment, or hf auth login
tokenizer | tokenizer_type | tf | otherwise | the class itself, such as BertTokenizer.from_pretrained(name)
tokenizer | trust_remote_code | tf | nothing | code from a checkpoint is never run
tokenizer | use_auth_token | tf | otherwise | HF_TOKEN=... in the environment, or hf auth login
tokenizer | use_fast | tf | nothing | every tokenizer is a fast one
tokenizer | verbose | tf | nothing | a tokenizer prints nothing
tokenizer() | max_len | other | otherwise | max_length=
tokenizer() | pad_to_max_length | tf | otherwise | padding='max_length'
tokenizer() | split_special_tokens | tf | otherwise | a text without them: special tokens are never split
tokenizer() | text_target | tf | same
tokenizer() | texts | other | otherwise | text=
tokenizer() | truncation_strategy | tf | otherwise | truncation=
tokenizer() | verbose | tf | nothing | a tokenizer prints nothing
tokenizer. | add_special_tokens | tf | same
tokenizer. | add_tokens | tf | same
tokenizer. | additional_special_tokens | tf | same
tokenizer. | apply_chat_template | tf | otherwise | tokenizer(text): encoders have no chat
tokenizer. | as_target_tokenizer | tf | otherwise | tokenizer(text_target=texts)
tokenizer. | batch_encode_plus | tf | same
tokenizer. | chat_template | tf | otherwise | tokenizer(text): encoders have no chat
tokenizer. | convert_tokens_to_string | tf | same
tokenizer. | decode_batch | other | otherwise | tokenizer.batch_decode(rows)
tokenizer. | encode_batch | other | otherwise | tokenizer(texts)
tokenizer. | encode_plus | tf | same
tokenizer. | extra_special_tokens | tf | otherwise | tokenizer.additional_special_tokens
tokenizer. | get_added_vocab | tf | same
tokenizer. | id_to_token | other | otherwise | tokenizer.convert_ids_to_tokens(number)
tokenizer. | ids_to_tokens | tf | otherwise | tokenizer.convert_ids_to_tokens(ids)
tokenizer. | init_kwargs | tf | otherwise | tokenizer.model_max_length, tokenizer.padding_side, ...
tokenizer. | is_fast | tf | same
tokenizer. | max_len | tf | otherwise | tokenizer.model_max_length
tokenizer. | max_length | other | otherwise | tokenizer.model_max_length
tokenizer. | prepare_for_model | tf | otherwise | tokenizer(text, ...), or tokenizer.build_inputs_with_special_tokens(ids)
tokenizer. | prepare_seq2seq_batch | tf | otherwise | tokenizer(texts, text_target=targets)
tokenizer. | push_to_hub | tf | otherwise | tokenizer.save_pretrained(folder); hf upload NAME folder
tokenizer. | sanitize_special_tokens | tf | otherwise | nothing: special tokens are always whole
tokenizer. | save_vocabulary | tf | otherwise | tokenizer.save_pretrained(folder)
tokenizer. | special_tokens | other | otherwise | tokenizer.special_tokens_map
tokenizer. | token_to_id | other | otherwise | tokenizer.convert_tokens_to_ids(token)
tokenizer. | tokenizer | other | otherwise | tokenizer.backend_tokenizer
tokenizer. | train_new_from_iterator | tf | same
tokenizer. | truncate_sequences | tf | otherwise | tokenizer(text, truncation=True, max_length=...)
tokenizer. | unique_no_split_tokens | tf | otherwise | tokenizer.get_added_vocab()
tokenizer. | vocabulary | other | otherwise | tokenizer.get_vocab()
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


def has_no_effect(entry: str, name: str, value: object) -> bool:
    """Whether a keyword of an entry is accepted and ignored: always, or because None or False leave it out."""
    left_out = value is None or value is False
    return name in without_meaning(entry) or (left_out and (entry, name) in habits())


def refuse_others(entry: str, given: Mapping[str, object], known: Iterable[str] = ()) -> None:
    """Refuse (InputError) keywords of an entry that are neither ``known`` nor accepted without an effect."""
    known = list(known)
    for name, value in given.items():
        if name not in known and not has_no_effect(entry, name, value):
            raise InputError(f"{entry} has no argument {name!r}{remedy(entry, name, known)}")


def no_attribute(owner: object, entry: str, name: str, more: Iterable[str] = ()) -> AttributeError:
    """The error about an attribute that ``owner`` does not have; ``entry`` is that of its kind, such as ``model.``."""
    known = [each for each in dir(type(owner)) if not each.startswith("_")]
    hint = "" if name.startswith("_") else remedy(entry, name, [*known, *more])
    return AttributeError(f"{type(owner).__name__} has no attribute {name!r}{hint}", name=name)
