"""Text-to-text generation with BART and T5."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from bertkit.config.config_file import checkpoint_folder, config_path, read_config
from bertkit.config.decision import read_decision
from bertkit.config.generation_settings import GenerationSettings
from bertkit.config.sentence_config import checked_prompt
from bertkit.engine.rows import WindowSize, stream
from bertkit.errors import CheckpointError, InputError, TextError, needs_bertkit
from bertkit.inference.generation_tasks import RESULTS, kind_of, translations
from bertkit.inference.pipeline_base import OtherNames, check_lengths, check_vocabulary, shown, with_options
from bertkit.inference.pipeline_folder import copy_model_folder
from bertkit.inference.pipeline_inputs import Inputs, Shaped, Text, num_characters, read_request
from bertkit.ragged import Ragged
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

if TYPE_CHECKING:
    from bertkit.model.seq2seq.conditional_generation import ConditionalGeneration

#: Texts that are sorted by length together; few, because generation is slow and results should come soon.
WINDOW = WindowSize(items=256, first=16, characters=2_000_000)

Generated = dict[str, str]


class TextToTextPipeline:
    """BART or T5 with its tokenizer, ready to use on text. Made by :func:`bertkit.pipeline`."""

    #: One of :data:`RESULTS`, or a translation such as ``translation_en_to_de``.
    task: str = "text2text-generation"
    #: What the checkpoint puts before each text in this task; T5 reads its task from it.
    prefix: str = ""
    #: Keywords of every call that does not set them itself: what :func:`bertkit.pipeline` was given.
    options: Mapping[str, Any] = MappingProxyType({})
    #: Keywords of other versions; see :class:`bertkit.inference.pipeline_base.Pipeline`.
    other_names: ClassVar[OtherNames] = MappingProxyType({})
    framework: ClassVar[str] = "pt"
    #: Where the model was loaded from; None for a model object.
    folder: Path | None = None

    def __init__(self, task: str, model: ConditionalGeneration, tokenizer: PreTrainedTokenizer) -> None:
        from bertkit.engine.text_generator import TextGenerator

        self.task, self.model, self.tokenizer = task, model, tokenizer
        self._generator = TextGenerator(model)
        self._trained_length: int | None = None
        self._choices: list[str] = []  # translations of the checkpoint, of which none was chosen
        #: Of every call that does not set them itself: the checkpoint's, and what it says of this task in particular.
        self.settings = model.generation_settings
        # The authors' BARTs for summaries have no vector for the mask.
        check_vocabulary(tokenizer, model.config.vocab_size, without_mask=True)
        for name in ("decoder_start_token_id", "eos_token_id", "pad_token_id"):
            if (number := getattr(model.config, name)) >= len(tokenizer):
                raise CheckpointError(
                    f"config.json has {name}={number}, which is no token of the tokenizer ({len(tokenizer):,} tokens): "
                    "they do not belong together"
                )

    @classmethod
    def open(
        cls,
        task: str,
        model: Path | object,
        tokenizer: PreTrainedTokenizer | None = None,
        *,
        device: Any = None,
        dtype: Any = None,
    ) -> TextToTextPipeline:
        """The pipeline of a checkpoint or a model object, as :func:`bertkit.pipeline` makes it."""
        with needs_bertkit(f"a model for {task}"):
            from bertkit.model.seq2seq.conditional_generation import AutoModelForSeq2SeqLM, ConditionalGeneration
            from bertkit.system.device import find_device

        known: list[str] = []
        said: Mapping[str, Json] = {}
        trained: Mapping[str, Json] = {}
        folder = checkpoint_folder(model) if isinstance(model, Path) else None
        if isinstance(model, Path):
            said, trained = read_config(config_path(model)), read_decision(checkpoint_folder(model))
            known = translations(task, said)
            tokenizer = tokenizer or AutoTokenizer.from_pretrained(checkpoint_folder(model))
            model = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=dtype).to(find_device(device))
        elif not isinstance(model, ConditionalGeneration):
            raise InputError(f"task {task!r} needs a model that generates text (BART, T5), got {type(model).__name__}")
        elif tokenizer is None:
            raise InputError("a model object does not know its tokenizer: pass tokenizer= as well")
        elif device is not None or dtype is not None:
            model = model.to(device=None if device is None else find_device(device), dtype=dtype)
        made = cls(task, model, tokenizer)
        made.folder = folder
        made._choices = known if len(known) > 1 else []
        made.prefix, changes = GenerationSettings.of_task(said, known[0] if len(known) == 1 else task)
        if "prefix" in trained:  # what it was fine-tuned with
            made.prefix, made._choices = str(trained["prefix"]), []
        if isinstance(longest := trained.get("max_length"), int):
            made._trained_length = longest
        made.settings = made.settings.replace(**changes)
        return made

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model and its tokenizer; see :meth:`bertkit.inference.pipeline_base.Pipeline.save_pretrained`."""
        if self.folder is not None:
            copy_model_folder(self.folder, user_path(folder))
        else:
            self.model.save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @property
    def max_length(self) -> int:
        """Most tokens of an input, special tokens included."""
        limits = (self.tokenizer.model_max_length, self.model.model.max_length, self._trained_length)
        return min(limit for limit in limits if limit)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(task={self.task!r}, model={type(self.model).__name__})"

    @with_options
    def __call__(
        self,
        inputs: Inputs,
        *,
        prefix: str | None = None,
        truncation: bool = False,
        seed: int | None = None,
        progress: bool | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        max_new_tokens: int | None = None,
        min_new_tokens: int | None = None,
        num_beams: int | None = None,
        do_sample: bool | None = None,
        temperature: float | None = None,
        num_return_sequences: int | None = None,
        **others: Any,
    ) -> Shaped[Generated | list[Generated]]:
        """Generate text for each input; none is empty.

        As in ``transformers``: for one text a list of its ``num_return_sequences`` dicts; for several a dict each, or a
        list each where ``num_return_sequences`` is over 1. The key is ``generated_text``, ``summary_text`` or
        ``translation_text``, by the task.

        prefix: put before each text. T5 reads its task from it, for example ``"summarize: "`` or
            ``"translate English to German: "``. None: what the checkpoint says of the task, if anything.
        seed: of sampling.
        settings: fields of :class:`~bertkit.config.generation_settings.GenerationSettings` by name; any of these is
            also a keyword, of which the most common are named here. Those left out keep the checkpoint's values.
        """
        given = {
            "max_new_tokens": max_new_tokens,
            "min_new_tokens": min_new_tokens,
            "num_beams": num_beams,
            "do_sample": do_sample,
            "temperature": temperature,
            "num_return_sequences": num_return_sequences,
            **others,
        }
        chosen = self._chosen(settings, given)
        request = read_request(inputs, tuple_is_pair=False)

        def encode(
            texts: list[Text], first: int
        ) -> tuple[Ragged, Callable[[list[list[Generated]]], Iterable[list[Generated]]]]:
            return self._encode(texts, first, prefix, truncation), lambda found: found

        def run(rows: Ragged, advance: Callable[[int], None]) -> list[list[Generated]]:
            return self._generate(rows, chosen, seed, advance)

        if request.shape == "one":
            rows, _ = encode(list(request.items), 0)
            return run(rows, lambda count: None)[0]
        lazy = request.shape == "lazy"

        def answers() -> Iterator[Generated | list[Generated]]:
            with shown(request.total, self.task, progress) as advance:
                for found in stream(
                    request.items, encode, run, size=WINDOW, weight=num_characters, lazy=lazy, advance=advance
                ):
                    yield found if chosen.num_return_sequences > 1 else found[0]

        return answers() if lazy else list(answers())

    @with_options
    def stream(
        self,
        text: str,
        *,
        prefix: str | None = None,
        truncation: bool = False,
        seed: int | None = None,
        progress: bool | None = None,
        settings: Mapping[str, Any] = MappingProxyType({}),
        **named: Any,
    ) -> Iterator[str]:
        """Generate for one text, and give what is written piece by piece, as soon as it is known.

        Arguments and errors are those of a call; together the pieces are what a call without beams generates. A beam
        search knows its first word at the end only: the number of beams is 1 unless it is given, and then an error.
        ``progress`` has no effect.
        """
        chosen = self._chosen({"num_beams": 1, **settings}, named)
        if chosen.num_return_sequences > 1:
            raise InputError(f"a stream writes one text, got num_return_sequences={chosen.num_return_sequences}")
        rows = self._encode([(text, None)], 0, prefix, truncation)
        tokens = self.model.stream_rows(rows, seed=seed, num_words=len(self.tokenizer), **chosen.model_dump())
        return self._pieces(int(token) for token in tokens)

    def _pieces(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text of some tokens in pieces; a piece ends before a blank, as the tokens to come may change a word."""
        ids: list[int] = []
        done, text = 0, ""
        for token in tokens:
            ids.append(token)
            text = self.tokenizer.decode(ids, skip_special_tokens=True).strip()
            ready = max(text.rfind(" "), done)
            if ready > done:
                yield text[done:ready]
                done = ready
        if text[done:]:
            yield text[done:]

    def _chosen(self, settings: Mapping[str, Any], named: Mapping[str, Any]) -> GenerationSettings:
        return self.settings.replace(
            **{**settings, **{key: value for key, value in named.items() if value is not None}}
        )

    def _encode(self, texts: list[Text], first: int, prefix: str | None, truncation: bool) -> Ragged:
        if truncation not in (True, False):
            raise InputError(f"truncation must be True or False, got {truncation!r}")
        if prefix is None and self._choices:
            raise InputError(
                f"this model translates in several ways: choose a task ({', '.join(self._choices)}), or give prefix="
            )
        prefix = self.prefix if prefix is None else checked_prompt(prefix)
        for number, (text, pair) in enumerate(texts, start=first):
            if pair is not None:
                raise InputError(f"text {number} (counted from 0) is a pair; text generation takes single texts")
            if not text.strip():
                raise TextError(f"text {number} (counted from 0) is empty")
        rows = featurize_texts([prefix + text for text, _ in texts], None, self.tokenizer, max_length=self.max_length)
        if not truncation:
            check_lengths(rows, self.max_length, first)
        return rows

    def _generate(
        self, rows: Ragged, chosen: GenerationSettings, seed: int | None, advance: Callable[[int], None]
    ) -> list[list[Generated]]:
        kind = kind_of(self.task)
        assert kind is not None, self.task
        found = self._generator.generate(rows, chosen, seed=seed, num_words=len(self.tokenizer), advance=advance)
        texts = [self.tokenizer.batch_decode(each, skip_special_tokens=True) for each in found]
        return [[{RESULTS[kind]: text.strip()} for text in each] for each in texts]
