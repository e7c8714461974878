"""``pipeline(task, model=...)``, which begins to read the weights before anything else is imported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertkit.checkpoints.safetensors_format import reading_ahead
from bertkit.checkpoints.weight_files import single_file
from bertkit.system.paths import user_path

if TYPE_CHECKING:
    from bertkit.engine.backend import Network, Precision
    from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


def pipeline(
    task: str | None = None,
    model: str | Path | Network | None = None,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    device: Any = None,
    *,
    revision: str | None = None,
    dtype: Any = None,
    precision: Precision = "auto",
    threads: int | None = None,
    method: str | None = None,
    **options: Any,
) -> Any:
    """Make something that takes text and returns the task's results.

    Args:
        task: one of ``fill-mask``, ``next-sentence``, ``text-classification`` (also ``sentiment-analysis``),
            ``text-ranking``, ``token-classification`` (also ``ner``), ``question-answering``, ``multiple-choice``,
            ``sparse-encoding``, ``feature-extraction``, ``sentence-similarity``, ``zero-shot-classification``; for BART
            and T5 ``text2text-generation``, ``summarization``, ``translation`` (``translation_en_to_de`` ...). A BART
            is also for text classification, question answering and masks; both give vectors. A kind of
            :data:`bertkit.tasks.registry.KINDS` answers as ``bertkit predict`` does. None: the task of its head.
        model: a folder (also of word vectors), a Hub name, a run folder of ``bertkit finetune``, an exported folder, or
            a model object. Loading is strict: a checkpoint without the task's head is an error, never a random head.
            None: ``bertkit-tiny-en``, the included model, for the tasks of
            :data:`bertkit.inference.open_pipeline.INCLUDED_DOES`; stderr says so.
        tokenizer: a folder, a Hub name or a tokenizer; by default the one beside the model. Needed for a model object.
        device: ``"cpu"``, ``"cuda:0"`` ..., a ``torch.device``, the number of a GPU, or -1 for the CPU; None takes a
            GPU where there is one, and leaves a model object where it is.
        revision: commit, tag or branch of a Hub name.
        dtype: of the weights, a ``torch.dtype`` or its name; by default, and for ``"auto"``, float32, on a GPU 16 bits.
        precision: of the products; see :meth:`bertkit.engine.inference_engine.InferenceEngine.of`.
        threads: of the processor that one call may use; None: as many as torch, or the runtime of an export, uses.
        method: of zero-shot classification: ``"nli"`` (a classifier that knows entailment), ``"embedding"`` (any
            encoder) or ``"pattern"`` (a model that fills masks); None: by the model's head.
        **options: defaults for the keywords of the pipeline's calls, for example ``top_k=3``, ``truncation=True``,
            ``max_length=128``, ``aggregation_strategy="first"`` or ``pooling="mean"``. ``torch_dtype``, ``device_map``
            and ``model_kwargs`` are other ways to say ``dtype`` and ``device``. What has no effect here, such as
            ``batch_size``, is in the page of habits; calls accept and refuse the same.

    On a CPU the encoder is computed by a library in C that is compiled when it is first needed, if there is a compiler;
    otherwise by torch, with a second copy of its matrices. ``pipe.model`` is the model object; of one that was loaded
    here the weights are loaded again for it.

    Returns:
        The task's pipeline; see its ``__call__``.

    Raises:
        InputError: an unknown task or option, no model for a task that needs one, a model of another class, a model
            without a head to infer the task from, or a model object without its tokenizer.
        ConfigError: this machine has no such device, or the model no such precision.
        CheckpointError: the model or tokenizer cannot be loaded.
        MissingExtraError: an exported model without ONNX Runtime, or another one without torch.
    """
    place = user_path(model) if isinstance(model, str | Path) else None
    with reading_ahead(None if place is None else single_file(place)):
        # Imported while a thread reads the weights, which takes as long.
        from bertkit.inference.open_pipeline import open_pipeline

        return open_pipeline(task, model, tokenizer, device, revision, dtype, precision, threads, method, options)
